// SPDX-License-Identifier: Apache-2.0

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Writes small class files: public fields, a public constructor without arguments, nothing else. */
final class ClassBytes {
    /** A loader over generated classes, with a reference field of its own, as application loaders have. */
    static class Loader extends ClassLoader {
        private final Map<String, byte[]> classes;
        /** Reachable through the loader object alone. */
        Stress.Node held;

        Loader(Map<String, byte[]> classes, ClassLoader parent) {
            super(parent);
            this.classes = classes;
        }

        @Override
        protected Class<?> findClass(String name) throws ClassNotFoundException {
            byte[] bytes = classes.get(name);
            if (bytes == null) {
                throw new ClassNotFoundException(name);
            }
            return defineClass(name, bytes, 0, bytes.length);
        }
    }

    private static final int PUBLIC = 0x0001;
    private static final int STATIC = 0x0008;
    private static final int SUPER = 0x0020;

    private final String name;
    private final String parent;
    private final List<Field> fields = new ArrayList<>();
    private final Map<String, Integer> pool = new LinkedHashMap<>();
    private final ByteArrayOutputStream poolBytes = new ByteArrayOutputStream();
    private final DataOutputStream poolOut = new DataOutputStream(poolBytes);
    private int poolCount = 1;

    private record Field(int access, String name, String descriptor) {}

    ClassBytes(String name, String parent) {
        this.name = name.replace('.', '/');
        this.parent = parent.replace('.', '/');
    }

    /** A public instance field; descriptors are those of the class file ("J", "Ljava/lang/Object;"). */
    ClassBytes field(String fieldName, String descriptor) {
        fields.add(new Field(PUBLIC, fieldName, descriptor));
        return this;
    }

    ClassBytes staticField(String fieldName, String descriptor) {
        fields.add(new Field(PUBLIC | STATIC, fieldName, descriptor));
        return this;
    }

    byte[] bytes() {
        try {
            return write();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private byte[] write() throws IOException {
        var body = new ByteArrayOutputStream();
        var out = new DataOutputStream(body);
        out.writeShort(PUBLIC | SUPER);
        out.writeShort(classConstant(name));
        out.writeShort(classConstant(parent));
        out.writeShort(0);
        out.writeShort(fields.size());
        for (Field field : fields) {
            out.writeShort(field.access());
            out.writeShort(utf8(field.name()));
            out.writeShort(utf8(field.descriptor()));
            out.writeShort(0);
        }
        out.writeShort(1);
        out.writeShort(PUBLIC);
        out.writeShort(utf8("<init>"));
        out.writeShort(utf8("()V"));
        out.writeShort(1);
        out.writeShort(utf8("Code"));
        out.writeInt(17);
        out.writeShort(1);  // stack
        out.writeShort(1);  // locals
        out.writeInt(5);
        out.writeByte(0x2a);  // aload_0
        out.writeByte(0xb7);  // invokespecial
        out.writeShort(superConstructor());
        out.writeByte(0xb1);  // return
        out.writeShort(0);
        out.writeShort(0);
        out.writeShort(0);

        var file = new ByteArrayOutputStream();
        var head = new DataOutputStream(file);
        head.writeInt(0xCAFEBABE);
        head.writeInt(52);
        head.writeShort(poolCount);
        poolBytes.writeTo(head);
        body.writeTo(head);
        return file.toByteArray();
    }

    private int superConstructor() throws IOException {
        int holder = classConstant(parent);
        int constructor = utf8("<init>");
        int descriptor = utf8("()V");
        int nameAndType = constant("T", 12, constructor, descriptor);
        return constant("M", 10, holder, nameAndType);
    }

    private int classConstant(String internalName) throws IOException {
        return constant("C" + internalName, 7, utf8(internalName));
    }

    private int constant(String key, int tag, int... indexes) throws IOException {
        Integer known = pool.get(key);
        if (known != null) {
            return known;
        }
        poolOut.writeByte(tag);
        for (int index : indexes) {
            poolOut.writeShort(index);
        }
        pool.put(key, poolCount);
        return poolCount++;
    }

    private int utf8(String text) throws IOException {
        Integer known = pool.get("U" + text);
        if (known != null) {
            return known;
        }
        poolOut.writeByte(1);
        poolOut.writeUTF(text);
        pool.put("U" + text, poolCount);
        return poolCount++;
    }
}
