// SPDX-License-Identifier: Apache-2.0

import com.sun.tools.attach.VirtualMachine;
import java.io.FileOutputStream;
import java.lang.instrument.ClassDefinition;
import java.lang.instrument.Instrumentation;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.jar.Attributes;
import java.util.jar.JarOutputStream;
import java.util.jar.Manifest;

/** Redefines classes of this JVM; programs that use it have {@code -Djdk.attach.allowAttachSelf=true} in their flags. */
public final class Redefinition {
    private static volatile Instrumentation instrumentation;

    private Redefinition() {}

    /** Called by the JVM once it is its own agent. */
    public static void agentmain(String argument, Instrumentation given) {
        instrumentation = given;
    }

    /** Makes this JVM its own agent: a jar with nothing but a manifest, this class comes from the class path. */
    static void prepare() throws Exception {
        Path jar = Files.createTempFile("merapi-agent", ".jar");
        try {
            var manifest = new Manifest();
            Attributes attributes = manifest.getMainAttributes();
            attributes.put(Attributes.Name.MANIFEST_VERSION, "1.0");
            attributes.putValue("Agent-Class", Redefinition.class.getName());
            attributes.putValue("Can-Redefine-Classes", "true");
            new JarOutputStream(new FileOutputStream(jar.toFile()), manifest).close();
            VirtualMachine self = VirtualMachine.attach(Long.toString(ProcessHandle.current().pid()));
            try {
                self.loadAgent(jar.toString());
            } finally {
                self.detach();
            }
        } finally {
            Files.delete(jar);
        }
    }

    /** Leaves a class of the JVM's own behind each time, which is freed when nothing runs its methods any more. */
    static void redefine(Class<?> type, byte[] bytes) throws Exception {
        instrumentation.redefineClasses(new ClassDefinition(type, bytes));
    }
}
