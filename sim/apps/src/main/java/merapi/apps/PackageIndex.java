// SPDX-License-Identifier: Apache-2.0
package merapi.apps;

import java.io.BufferedReader;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Reads a Debian package index (the format of Packages files and of {@code apt-cache dumpavail}). */
final class PackageIndex {
  /** One stanza: the fields as they stand, continuation lines joined by a newline. */
  record Stanza(Map<String, String> fields) {
    String get(String field) {
      return fields.getOrDefault(field, "");
    }

    int number(String field) {
      String text = get(field);
      return text.isEmpty() ? 0 : Integer.parseInt(text.trim());
    }
  }

  /** A dependency of one package on another, both by position in {@link #stanzas}; kind is the field's first letter. */
  record Dependency(int source, int target, String kind) {}

  private static final List<String> RELATIONS = List.of("Depends", "Pre-Depends", "Recommends", "Suggests");

  final List<Stanza> stanzas;
  private final Map<String, Integer> byName = new HashMap<>();
  private final Map<String, Integer> providers = new HashMap<>();

  private PackageIndex(List<Stanza> stanzas) {
    this.stanzas = stanzas;
    for (int i = 0; i < stanzas.size(); i++) {
      byName.putIfAbsent(stanzas.get(i).get("Package"), i);
      for (String name : relationNames(stanzas.get(i).get("Provides"))) {
        providers.putIfAbsent(name, i);
      }
    }
  }

  /** Reads the whole index; the first stanza of a package name counts, later versions are left out. */
  static PackageIndex read(Path path) throws IOException {
    Map<String, Stanza> found = new LinkedHashMap<>();
    try (BufferedReader in = Files.newBufferedReader(path, StandardCharsets.UTF_8)) {
      Map<String, String> fields = new HashMap<>();
      String field = null;
      for (String line = in.readLine(); ; line = in.readLine()) {
        if (line == null || line.isEmpty()) {
          if (fields.containsKey("Package")) {
            found.putIfAbsent(fields.get("Package"), new Stanza(fields));
          }
          fields = new HashMap<>();
          field = null;
          if (line == null) {
            break;
          }
        } else if (Character.isWhitespace(line.charAt(0))) {
          if (field != null) {
            fields.merge(field, line, (a, b) -> a + "\n" + b);
          }
        } else {
          int colon = line.indexOf(':');
          if (colon < 0) {
            throw new IOException(path + ": expected 'Field: value', found '" + line + "'");
          }
          field = line.substring(0, colon).intern();
          fields.put(field, line.substring(colon + 1).strip());
        }
      }
    }
    return new PackageIndex(new ArrayList<>(found.values()));
  }

  /** Dependencies of package {@code source} that this index can resolve: of alternatives, the first one. */
  List<Dependency> dependencies(int source) {
    List<Dependency> found = new ArrayList<>();
    for (String relation : RELATIONS) {
      for (String clause : stanzas.get(source).get(relation).split(",")) {
        for (String name : relationNames(clause.replace('|', ','))) {
          Integer target = byName.getOrDefault(name, providers.get(name));
          if (target != null && target != source) {
            found.add(new Dependency(source, target, relation.substring(0, 1)));
            break;
          }
        }
      }
    }
    return found;
  }

  /** Package names of a relation field without versions and architectures. */
  private static List<String> relationNames(String text) {
    List<String> names = new ArrayList<>();
    for (String part : text.split(",")) {
      String name = part.strip();
      int end = 0;
      while (end < name.length() && " (:[<".indexOf(name.charAt(end)) < 0) {
        end++;
      }
      if (end > 0) {
        names.add(name.substring(0, end));
      }
    }
    return names;
  }
}
