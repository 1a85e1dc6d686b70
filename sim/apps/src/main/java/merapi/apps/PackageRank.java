// SPDX-License-Identifier: Apache-2.0
package merapi.apps;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Random;
import org.jgrapht.Graph;
import org.jgrapht.alg.scoring.PageRank;
import org.jgrapht.graph.DefaultEdge;
import org.jgrapht.graph.SimpleDirectedGraph;

/**
 * Which Debian packages does everything depend on? Loads a package index into an in-memory database, and in several
 * rounds ranks the packages by PageRank over their dependencies, stores the ranks, asks for reports, and uploads new
 * versions, while a client installs packages. Ends with status 1 when what is stored does not add up.
 *
 * <p>Usage: PackageRank INDEX [ROUNDS]
 */
public final class PackageRank {
  private static final long SEED = 20170917;

  private PackageRank() {}

  public static void main(String[] args) throws Exception {
    if (args.length < 1 || args.length > 2) {
      System.err.println("usage: PackageRank INDEX [ROUNDS]");
      System.exit(2);
    }
    int rounds = args.length > 1 ? Integer.parseInt(args[1]) : 5;
    PackageIndex index = PackageIndex.read(Path.of(args[0]));
    int packages = index.stanzas.size();
    try (PackageDatabase database = new PackageDatabase()) {
      database.load(index);
      print("loaded %,d packages, %,.0f dependencies, %,.0f tags", packages,
          database.number("SELECT COUNT(*) FROM depends"), database.number("SELECT COUNT(*) FROM tag"));
      InstallingClient client = new InstallingClient(packages, SEED);
      Thread thread = new Thread(client, "installing-client");
      thread.start();
      List<String> faults = new ArrayList<>();
      Random random = new Random(SEED);
      // Ranks of all rounds stay, as a service that plots them over time would keep them.
      List<Map<Integer, Double>> history = new ArrayList<>();
      for (int round = 1; round <= rounds; round++) {
        history.add(round(database, packages, round, faults));
        int uploads = upload(database, index, packages, round, random);
        print("round %d: %,d uploads; top: %s", round, uploads,
            String.join(", ", database.rows("SELECT name FROM package ORDER BY rank DESC, name LIMIT 5")));
        // With -XX:+ExplicitGCInvokesConcurrent this is a concurrent cycle, not a pause.
        System.gc();
      }
      client.stop();
      thread.join();
      if (client.failure() != null) {
        faults.add("the installing client failed: " + client.failure());
      }
      check(database, client, packages, faults);
      print("%d rounds, %,d installations, %d histories", rounds, client.installs(), history.size());
      for (String row : database.rows("SELECT section, COUNT(*), CAST(100 * SUM(rank) AS DECIMAL(9, 2)) AS share"
          + " FROM package GROUP BY section ORDER BY share DESC LIMIT 5")) {
        print("  %s %%", row);
      }
      for (String fault : faults) {
        System.err.println("PackageRank: " + fault);
      }
      if (!faults.isEmpty()) {
        System.exit(1);
      }
    }
  }

  /** Ranks all packages from what is stored and stores the ranks. */
  private static Map<Integer, Double> round(PackageDatabase database, int packages, int round, List<String> faults)
      throws Exception {
    Graph<Integer, DefaultEdge> graph = new SimpleDirectedGraph<>(DefaultEdge.class);
    for (int id = 0; id < packages; id++) {
      graph.addVertex(id);
    }
    for (PackageIndex.Dependency d : database.dependencies()) {
      graph.addEdge(d.source(), d.target());
    }
    Map<Integer, Double> scores = new PageRank<>(graph, 0.85, 50, 1e-9).getScores();
    double[] ranks = new double[packages];
    double sum = 0;
    for (int id = 0; id < packages; id++) {
      ranks[id] = scores.get(id);
      sum += ranks[id];
    }
    if (Math.abs(sum - 1) > 1e-3) {
      faults.add("round " + round + ": expected ranks that sum to 1, found " + sum);
    }
    database.storeRanks(ranks);
    double stored = database.number("SELECT SUM(rank) FROM package");
    if (Math.abs(stored - sum) > 1e-9) {
      faults.add("round " + round + ": stored ranks sum to " + stored + ", computed ones to " + sum);
    }
    print("round %d: ranked a graph of %,d packages and %,d edges", round, graph.vertexSet().size(),
        graph.edgeSet().size());
    return scores;
  }

  /** New versions of two percent of the packages, each with its dependencies stored again. */
  private static int upload(PackageDatabase database, PackageIndex index, int packages, int round, Random random)
      throws Exception {
    int uploads = packages / 50;
    for (int i = 0; i < uploads; i++) {
      int id = random.nextInt(packages);
      database.upgrade(id, index.stanzas.get(id).get("Version") + "+r" + round, index.dependencies(id));
    }
    return uploads;
  }

  /** Compares the database with what was put into it. */
  private static void check(PackageDatabase database, InstallingClient client, int packages, List<String> faults)
      throws Exception {
    expect(faults, "packages", packages, database.number("SELECT COUNT(*) FROM package"));
    expect(faults, "installations stored", client.stored(), database.number("SELECT SUM(installs) FROM package"));
    expect(faults, "dependencies without a package", 0, database.number(
        "SELECT COUNT(*) FROM depends d LEFT JOIN package p ON p.id = d.target WHERE p.id IS NULL"));
  }

  private static void expect(List<String> faults, String what, double expected, double found) {
    if (expected != found) {
      faults.add("expected " + (long) expected + " " + what + ", found " + (long) found);
    }
  }

  private static void print(String format, Object... arguments) {
    System.out.println(String.format(Locale.ROOT, format, arguments));
  }
}
