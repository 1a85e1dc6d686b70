// SPDX-License-Identifier: Apache-2.0
package merapi.apps;

import com.sun.source.tree.CompilationUnitTree;
import com.sun.source.util.JavacTask;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import javax.tools.DiagnosticCollector;
import javax.tools.JavaCompiler;
import javax.tools.JavaFileObject;
import javax.tools.StandardJavaFileManager;
import javax.tools.ToolProvider;
import javax.xml.parsers.DocumentBuilderFactory;
import org.jgrapht.Graph;
import org.jgrapht.alg.scoring.PageRank;
import org.jgrapht.graph.DefaultEdge;
import org.jgrapht.graph.SimpleDirectedGraph;
import org.w3c.dom.Document;
import org.w3c.dom.Element;

/**
 * Heaps of real programs, for saving their windows: a program does its work, keeps what it works on, and asks for
 * concurrent marking cycles. Run with -XX:+ExplicitGCInvokesConcurrent.
 *
 * <p>Usage: LivePrograms h2|jgrapht|javac|xml CYCLES INPUT, where INPUT is a package index or, for javac, a folder of
 * Java sources.
 */
public final class LivePrograms {
  private LivePrograms() {}

  public static void main(String[] args) throws Exception {
    if (args.length != 3) {
      System.err.println("usage: LivePrograms h2|jgrapht|javac|xml CYCLES INPUT");
      System.exit(2);
    }
    int cycles = Integer.parseInt(args[1]);
    Path input = Path.of(args[2]);
    List<Object> kept = new ArrayList<>();
    long size;
    switch (args[0]) {
      case "h2":
        size = database(input, kept);
        break;
      case "jgrapht":
        size = graph(input, kept);
        break;
      case "javac":
        size = compiler(input, kept);
        break;
      case "xml":
        size = document(input, kept);
        break;
      default:
        throw new IllegalArgumentException("expected h2, jgrapht, javac or xml, found " + args[0]);
    }
    for (int i = 0; i < cycles; i++) {
      System.gc();
      // Lets the cycle's last concurrent step end before the next one is asked for.
      Thread.sleep(50);
    }
    System.out.println("size " + size + " of " + kept.size());
  }

  /** An in-memory database, loaded, updated and queried. */
  private static long database(Path input, List<Object> kept) throws Exception {
    PackageIndex index = PackageIndex.read(input);
    PackageDatabase database = new PackageDatabase();
    kept.add(database);
    database.load(index);
    int packages = index.stanzas.size();
    for (int id = 0; id < packages; id += 50) {
      database.upgrade(id, index.stanzas.get(id).get("Version") + "+r1", index.dependencies(id));
    }
    kept.add(database.rows("SELECT section, COUNT(*) FROM package GROUP BY section ORDER BY 2 DESC"));
    return (long) database.number("SELECT COUNT(*) FROM depends");
  }

  /** The index's dependency graph, ranked. */
  private static long graph(Path input, List<Object> kept) throws Exception {
    PackageIndex index = PackageIndex.read(input);
    Graph<Integer, DefaultEdge> graph = new SimpleDirectedGraph<>(DefaultEdge.class);
    for (int id = 0; id < index.stanzas.size(); id++) {
      graph.addVertex(id);
    }
    for (int id = 0; id < index.stanzas.size(); id++) {
      for (PackageIndex.Dependency d : index.dependencies(id)) {
        graph.addEdge(d.source(), d.target());
      }
    }
    Map<Integer, Double> scores = new PageRank<>(graph, 0.85, 20, 1e-9).getScores();
    kept.add(graph);
    kept.add(scores);
    return graph.edgeSet().size();
  }

  /** Sources parsed and attributed by javac in this process; its trees and symbols are kept. */
  private static long compiler(Path input, List<Object> kept) throws Exception {
    JavaCompiler javac = ToolProvider.getSystemJavaCompiler();
    // Libraries that are not there make errors, which are collected and stand for nothing here.
    DiagnosticCollector<JavaFileObject> diagnostics = new DiagnosticCollector<>();
    StandardJavaFileManager files = javac.getStandardFileManager(diagnostics, null, null);
    List<Path> sources;
    try (Stream<Path> walk = Files.walk(input)) {
      sources = walk.filter(p -> p.toString().endsWith(".java")).sorted().toList();
    }
    JavacTask task = (JavacTask) javac.getTask(null, files, diagnostics, List.of("-proc:none", "-Xmaxerrs", "100000"),
        null, files.getJavaFileObjectsFromPaths(sources));
    long units = 0;
    for (CompilationUnitTree unit : task.parse()) {
      kept.add(unit);
      units++;
    }
    for (Object element : task.analyze()) {
      kept.add(element);
    }
    kept.add(task);
    return units;
  }

  /** The index as an XML document. */
  private static long document(Path input, List<Object> kept) throws Exception {
    PackageIndex index = PackageIndex.read(input);
    Document document = DocumentBuilderFactory.newInstance().newDocumentBuilder().newDocument();
    Element root = document.createElement("index");
    document.appendChild(root);
    for (PackageIndex.Stanza stanza : index.stanzas) {
      Element element = document.createElement("package");
      element.setAttribute("name", stanza.get("Package"));
      for (Map.Entry<String, String> field : stanza.fields().entrySet()) {
        Element child = document.createElement(field.getKey().toLowerCase(java.util.Locale.ROOT));
        for (String part : field.getValue().split(",")) {
          Element item = document.createElement("item");
          item.appendChild(document.createTextNode(part.strip()));
          child.appendChild(item);
        }
        element.appendChild(child);
      }
      root.appendChild(element);
    }
    kept.add(document);
    return document.getElementsByTagName("item").getLength();
  }
}
