// SPDX-License-Identifier: Apache-2.0
package merapi.apps;

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.List;

/** An in-memory H2 database of packages, their tags and their dependencies. */
final class PackageDatabase implements AutoCloseable {
  private static final String URL = "jdbc:h2:mem:packages;DB_CLOSE_DELAY=-1;LOCK_TIMEOUT=60000";
  private static final int BATCH = 5000;

  private final Connection connection;

  PackageDatabase() throws SQLException {
    connection = DriverManager.getConnection(URL);
  }

  Connection connection() {
    return connection;
  }

  /** Makes the tables and fills them from the index. */
  void load(PackageIndex index) throws SQLException {
    try (Statement s = connection.createStatement()) {
      s.execute("CREATE TABLE package(id INT PRIMARY KEY, name VARCHAR NOT NULL UNIQUE, version VARCHAR NOT NULL,"
          + " section VARCHAR, maintainer VARCHAR, description VARCHAR, installed_kb INT,"
          + " installs BIGINT DEFAULT 0 NOT NULL, rank DOUBLE PRECISION DEFAULT 0 NOT NULL)");
      s.execute("CREATE TABLE depends(source INT NOT NULL, target INT NOT NULL, kind CHAR(1) NOT NULL)");
      s.execute("CREATE TABLE tag(package INT NOT NULL, tag VARCHAR NOT NULL)");
      s.execute("CREATE INDEX package_section ON package(section)");
      s.execute("CREATE INDEX depends_source ON depends(source)");
      s.execute("CREATE INDEX depends_target ON depends(target)");
      s.execute("CREATE INDEX tag_tag ON tag(tag)");
    }
    connection.setAutoCommit(false);
    try (PreparedStatement insert = connection.prepareStatement(
            "INSERT INTO package(id, name, version, section, maintainer, description, installed_kb)"
                + " VALUES (?, ?, ?, ?, ?, ?, ?)");
        PreparedStatement depends = connection.prepareStatement("INSERT INTO depends VALUES (?, ?, ?)");
        PreparedStatement tag = connection.prepareStatement("INSERT INTO tag VALUES (?, ?)")) {
      for (int id = 0; id < index.stanzas.size(); id++) {
        PackageIndex.Stanza stanza = index.stanzas.get(id);
        insert.setInt(1, id);
        insert.setString(2, stanza.get("Package"));
        insert.setString(3, stanza.get("Version"));
        insert.setString(4, stanza.get("Section"));
        insert.setString(5, stanza.get("Maintainer"));
        insert.setString(6, stanza.get("Description"));
        insert.setInt(7, stanza.number("Installed-Size"));
        insert.addBatch();
        for (PackageIndex.Dependency d : index.dependencies(id)) {
          addDependency(depends, d);
        }
        for (String name : stanza.get("Tag").split(",")) {
          if (!name.isBlank()) {
            tag.setInt(1, id);
            tag.setString(2, name.strip());
            tag.addBatch();
          }
        }
        if (id % BATCH == BATCH - 1 || id == index.stanzas.size() - 1) {
          insert.executeBatch();
          depends.executeBatch();
          tag.executeBatch();
          connection.commit();
        }
      }
    }
    connection.setAutoCommit(true);
  }

  /** All dependencies that are stored now. */
  List<PackageIndex.Dependency> dependencies() throws SQLException {
    List<PackageIndex.Dependency> found = new ArrayList<>();
    try (Statement s = connection.createStatement();
        ResultSet rows = s.executeQuery("SELECT source, target, kind FROM depends")) {
      while (rows.next()) {
        found.add(new PackageIndex.Dependency(rows.getInt(1), rows.getInt(2), rows.getString(3)));
      }
    }
    return found;
  }

  /** Stores a rank for each package id. */
  void storeRanks(double[] ranks) throws SQLException {
    connection.setAutoCommit(false);
    try (PreparedStatement update = connection.prepareStatement("UPDATE package SET rank = ? WHERE id = ?")) {
      for (int id = 0; id < ranks.length; id++) {
        update.setDouble(1, ranks[id]);
        update.setInt(2, id);
        update.addBatch();
        // Short transactions: the installing client updates the same rows meanwhile.
        if (id % 500 == 499 || id == ranks.length - 1) {
          update.executeBatch();
          connection.commit();
        }
      }
    }
    connection.setAutoCommit(true);
  }

  /** Replaces a package's dependencies and version, as an upload of a new version does. */
  void upgrade(int id, String version, List<PackageIndex.Dependency> dependencies) throws SQLException {
    connection.setAutoCommit(false);
    try (PreparedStatement package_ = connection.prepareStatement("UPDATE package SET version = ? WHERE id = ?");
        PreparedStatement delete = connection.prepareStatement("DELETE FROM depends WHERE source = ?");
        PreparedStatement insert = connection.prepareStatement("INSERT INTO depends VALUES (?, ?, ?)")) {
      package_.setString(1, version);
      package_.setInt(2, id);
      package_.executeUpdate();
      delete.setInt(1, id);
      delete.executeUpdate();
      for (PackageIndex.Dependency d : dependencies) {
        addDependency(insert, d);
      }
      insert.executeBatch();
      connection.commit();
    }
    connection.setAutoCommit(true);
  }

  private static void addDependency(PreparedStatement insert, PackageIndex.Dependency d) throws SQLException {
    insert.setInt(1, d.source());
    insert.setInt(2, d.target());
    insert.setString(3, d.kind());
    insert.addBatch();
  }

  /** A query's only number. */
  double number(String query) throws SQLException {
    try (Statement s = connection.createStatement(); ResultSet rows = s.executeQuery(query)) {
      rows.next();
      return rows.getDouble(1);
    }
  }

  /** A query's rows, columns joined by blanks. */
  List<String> rows(String query) throws SQLException {
    List<String> found = new ArrayList<>();
    try (Statement s = connection.createStatement(); ResultSet rows = s.executeQuery(query)) {
      int columns = rows.getMetaData().getColumnCount();
      while (rows.next()) {
        StringBuilder row = new StringBuilder();
        for (int i = 1; i <= columns; i++) {
          row.append(i > 1 ? "  " : "").append(rows.getString(i));
        }
        found.add(row.toString());
      }
    }
    return found;
  }

  @Override
  public void close() throws SQLException {
    try (Statement s = connection.createStatement()) {
      s.execute("SHUTDOWN");
    }
  }

  /** A second connection to the same database. */
  static Connection connect() throws SQLException {
    return DriverManager.getConnection(URL);
  }
}
