// SPDX-License-Identifier: Apache-2.0

import java.io.IOException;
import java.lang.invoke.CallSite;
import java.lang.invoke.LambdaMetafactory;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.lang.invoke.MutableCallSite;
import java.lang.ref.WeakReference;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;
import java.util.function.LongSupplier;

/**
 * Hidden classes with class data, lambdas, proxies, bound and mutable method handles: each keeps a node that nothing
 * else keeps, most of them get compiled with the node as a constant, and all are dropped and remade during marking.
 *
 * @flags -Xms128m -Xmx128m
 * @traces 6
 */
public final class HiddenClasses {
    private static final MethodHandles.Lookup LOOKUP = MethodHandles.lookup();
    private static final byte[] TEMPLATE = templateBytes();

    /** Defined again and again as a hidden class, each time with its own node as class data. */
    static final class Template implements LongSupplier {
        private static final Stress.Node CONSTANT = classData();

        private static Stress.Node classData() {
            try {
                return MethodHandles.classData(MethodHandles.lookup(), "_", Stress.Node.class);
            } catch (IllegalAccessException e) {
                throw new ExceptionInInitializerError(e);
            }
        }

        @Override
        public long getAsLong() {
            return CONSTANT == null ? -1 : CONSTANT.intact().id;
        }
    }

    private static byte[] templateBytes() {
        try (var in = HiddenClasses.class.getResourceAsStream("HiddenClasses$Template.class")) {
            return in.readAllBytes();
        } catch (IOException e) {
            throw new ExceptionInInitializerError(e);
        }
    }

    private static LongSupplier make(long id, int kind) throws Throwable {
        var node = new Stress.Node(id, null);
        switch (kind) {
            case 0: {
                Class<?> hidden = LOOKUP.defineHiddenClassWithClassData(TEMPLATE, node, true).lookupClass();
                var constructor = hidden.getDeclaredConstructor();
                constructor.setAccessible(true);
                return (LongSupplier) constructor.newInstance();
            }
            case 1: {
                MethodType seal = MethodType.methodType(long.class, Stress.Node.class);
                MethodHandle body = LOOKUP.findStatic(HiddenClasses.class, "idOf", seal);
                CallSite site = LambdaMetafactory.metafactory(LOOKUP, "getAsLong",
                    MethodType.methodType(LongSupplier.class, Stress.Node.class), MethodType.methodType(long.class), body,
                    MethodType.methodType(long.class));
                return (LongSupplier) site.getTarget().invoke(node);
            }
            case 2:
                return (LongSupplier) Proxy.newProxyInstance(new ClassLoader(HiddenClasses.class.getClassLoader()) {},
                    new Class<?>[] {LongSupplier.class}, (proxy, method, arguments) -> idOf(node));
            case 3: {
                MethodHandle bound = LOOKUP.findStatic(HiddenClasses.class, "idOf",
                    MethodType.methodType(long.class, Stress.Node.class)).bindTo(node);
                return () -> invoke(bound);
            }
            default: {
                MethodHandle bound = MethodHandles.insertArguments(LOOKUP.findStatic(HiddenClasses.class, "idOf",
                    MethodType.methodType(long.class, Stress.Node.class)), 0, node);
                MethodHandle invoker = new MutableCallSite(bound).dynamicInvoker();
                return () -> invoke(invoker);
            }
        }
    }

    private static long invoke(MethodHandle handle) {
        try {
            return (long) handle.invokeExact();
        } catch (Throwable thrown) {
            throw new AssertionError(thrown);
        }
    }

    private static long idOf(Stress.Node node) {
        return node.intact().id;
    }

    private final LongSupplier[] suppliers;
    private final long[] ids;
    private final List<WeakReference<Class<?>>> dropped = new ArrayList<>();
    private long next;

    private HiddenClasses(int count) throws Throwable {
        suppliers = new LongSupplier[count];
        ids = new long[count];
        for (int i = 0; i < count; i++) {
            ids[i] = next++;
            suppliers[i] = make(ids[i], i % 5);
        }
    }

    private void check(int at) {
        long found = suppliers[at].getAsLong();
        Stress.check(found == ids[at], "supplier %d (%s) gave %d instead of %d", at, suppliers[at].getClass(), found, ids[at]);
    }

    private void step(SplittableRandom random) throws Exception {
        int hot = random.nextInt(suppliers.length);
        for (int i = 0; i < 3000; i++) {
            check(hot);
        }
        for (int i = 0; i < 16; i++) {
            check(random.nextInt(suppliers.length));
        }
        for (int i = 0; i < 4; i++) {
            int at = random.nextInt(suppliers.length);
            int kind = random.nextInt(5);
            if (at % 5 == 0) {
                dropped.add(new WeakReference<>(suppliers[at].getClass()));
                kind = 0;  // a multiple of five is a hidden class for ever, so that its class is its own
            }
            ids[at] = next++;
            try {
                suppliers[at] = make(ids[at], kind);
            } catch (Throwable thrown) {
                throw new AssertionError(thrown);
            }
        }
    }

    public static void main(String[] args) throws Throwable {
        var stress = new Stress(args);
        stress.ballast(150_000);
        var test = new HiddenClasses(stress.count("count", 400));
        stress.collectDuring(10, test::step);
        for (int i = 0; i < test.suppliers.length; i++) {
            test.check(i);
        }
        boolean concurrently = Stress.unloadsConcurrently();
        Stress.collectUntil(() -> {
            if (!concurrently) {
                Stress.fullCollection();
            }
            return test.dropped.stream().allMatch(hidden -> hidden.refersTo(null));
        }, 40, "every dropped hidden class goes");
        for (int i = 0; i < test.suppliers.length; i++) {
            test.check(i);
        }
        stress.ok("made %d hidden classes unloaded %d", test.next, test.dropped.size());
    }
}
