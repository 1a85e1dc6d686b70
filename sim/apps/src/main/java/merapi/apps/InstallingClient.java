// SPDX-License-Identifier: Apache-2.0
package merapi.apps;

import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.ArrayDeque;
import java.util.LinkedHashSet;
import java.util.Random;
import java.util.Set;

/**
 * Installs random packages with all they depend on, while the ranks are computed: the mutator that changes the
 * object graph during marking. Counts what it stored, so that the database can be checked against it.
 */
final class InstallingClient implements Runnable {
  private final int packages;
  private final Random random;
  private volatile boolean stop;
  private volatile Exception failure;
  private long installs;
  private long stored;

  InstallingClient(int packages, long seed) {
    this.packages = packages;
    this.random = new Random(seed);
  }

  /** Asks the client to end after the installation at hand. */
  void stop() {
    stop = true;
  }

  /** Installations done; read after the thread has ended. */
  long installs() {
    return installs;
  }

  /** Sum of the increments stored in column installs; read after the thread has ended. */
  long stored() {
    return stored;
  }

  /** Why the client ended early, or null. */
  Exception failure() {
    return failure;
  }

  @Override
  public void run() {
    try (Connection connection = PackageDatabase.connect();
        PreparedStatement targets =
            connection.prepareStatement("SELECT target FROM depends WHERE source = ? AND kind IN ('D', 'P')");
        PreparedStatement count =
            connection.prepareStatement("UPDATE package SET installs = installs + 1 WHERE id = ?")) {
      connection.setAutoCommit(false);
      while (!stop) {
        Set<Integer> closure = closure(targets, random.nextInt(packages));
        for (int id : closure.stream().sorted().toList()) {
          count.setInt(1, id);
          int rows = count.executeUpdate();
          if (rows != 1) {
            throw new IllegalStateException("expected one package with id " + id + ", found " + rows);
          }
          connection.commit();
          stored++;
        }
        installs++;
      }
    } catch (SQLException | IllegalStateException e) {
      failure = e;
    }
  }

  private static Set<Integer> closure(PreparedStatement targets, int start) throws SQLException {
    Set<Integer> found = new LinkedHashSet<>();
    ArrayDeque<Integer> open = new ArrayDeque<>();
    found.add(start);
    open.add(start);
    while (!open.isEmpty() && found.size() < 400) {
      targets.setInt(1, open.remove());
      try (ResultSet rows = targets.executeQuery()) {
        while (rows.next()) {
          if (found.add(rows.getInt(1))) {
            open.add(rows.getInt(1));
          }
        }
      }
    }
    return found;
  }
}
