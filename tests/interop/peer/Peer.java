// Kafka's own raft client as a peer of ours: opaque records, no controller on top. Compiled on first use (peer.py).
//
//     java Peer FILE.properties CLUSTER_ID DIRECTORY_ID
//
// It prints `orders PORT`; whoever connects there gives one order a line and gets one line of JSON:
//     status | leaders | resign | load COUNT PREFIX CALLERS | snapshot VALUES | bench CALLERS MILLISECONDS SIZE
//
// Constructors differ between releases in what they take and in what order; `Parts` looks for one that can be filled.
import java.io.*;
import java.lang.reflect.*;
import java.net.*;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import kafka.network.SocketServer;
import kafka.raft.KafkaRaftManager;
import kafka.server.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.message.ApiMessageType.ListenerType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.protocol.*;
import org.apache.kafka.common.security.scram.internals.ScramMechanism;
import org.apache.kafka.common.security.token.delegation.internals.DelegationTokenCache;
import org.apache.kafka.common.utils.*;
import org.apache.kafka.raft.*;
import org.apache.kafka.security.CredentialProvider;
import org.apache.kafka.server.common.FinalizedFeatures;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.server.common.serialization.RecordSerde;
import org.apache.kafka.server.fault.ProcessTerminatingFaultHandler;
import org.apache.kafka.snapshot.*;

public class Peer implements org.apache.kafka.raft.RaftClient.Listener<byte[]> {
    static final TopicPartition PARTITION = new TopicPartition("__cluster_metadata", 0);

    final List<String> leaders = Collections.synchronizedList(new ArrayList<>());
    final Map<String, Semaphore> waiting = new ConcurrentHashMap<>();
    final Map<String, Long> committed = new ConcurrentHashMap<>();
    volatile long appliedOffset;
    volatile int appliedEpoch;
    volatile Bench bench;
    KafkaRaftClient<byte[]> client;

    static class Bytes implements RecordSerde<byte[]> {
        public int recordSize(byte[] data, ObjectSerializationCache cache) { return data.length; }
        public void write(byte[] data, ObjectSerializationCache cache, Writable out) { out.writeByteArray(data); }
        public byte[] read(org.apache.kafka.common.protocol.Readable in, int size) { return in.readArray(size); }
    }

    public void handleCommit(BatchReader<byte[]> reader) {
        Bench bench = this.bench;
        try (reader) {
            while (reader.hasNext()) {
                Batch<byte[]> batch = reader.next();
                if (bench != null) {
                    bench.committed(batch.records());
                } else {
                    long offset = batch.baseOffset();
                    for (byte[] value : batch.records()) {
                        String text = new String(value, StandardCharsets.UTF_8);
                        Semaphore room = waiting.remove(text);
                        if (room != null) {
                            committed.put(text, offset);
                            room.release();
                        }
                        offset++;
                    }
                }
                appliedEpoch = batch.epoch();
                appliedOffset = batch.lastOffset() + 1;
            }
            if (bench != null) bench.schedule();
        }
    }

    public void handleLoadSnapshot(SnapshotReader<byte[]> reader) {
        appliedEpoch = reader.snapshotId().epoch();
        appliedOffset = reader.snapshotId().offset();
        reader.close();
    }

    public void handleLoadBootstrap(SnapshotReader<byte[]> reader) {
        reader.close();
    }

    public void handleLeaderChange(LeaderAndEpoch leader) {
        leader.leaderId().ifPresent(id -> leaders.add("[" + leader.epoch() + "," + id + "]"));
    }

    boolean leads() {
        return client.leaderAndEpoch().isLeader(client.nodeId().getAsInt());
    }

    /** Append COUNT values, at most CALLERS of them uncommitted; say which were committed, with their offsets. */
    String load(int count, String prefix, int callers) throws InterruptedException {
        Semaphore room = new Semaphore(callers);
        List<String> appended = new ArrayList<>();
        int epoch = client.leaderAndEpoch().epoch();
        boolean goesOn = leads();
        for (int number = 0; goesOn && number < count; number++) {
            while (goesOn && !room.tryAcquire(50, TimeUnit.MILLISECONDS)) goesOn = leads() && client.leaderAndEpoch().epoch() == epoch;
            String value = prefix + "-" + number;
            waiting.put(value, room);
            try {
                if (goesOn) client.prepareAppend(epoch, List.of(value.getBytes(StandardCharsets.UTF_8)));
                if (goesOn) client.schedulePreparedAppend();
                appended.add(value);
            } catch (RuntimeException lost) { // no leader any more
                goesOn = false;
            }
        }
        if (goesOn) room.tryAcquire(callers, 10, TimeUnit.SECONDS);
        return appended.stream().filter(committed::containsKey)
            .map(value -> "\"" + value + "\":" + committed.get(value)).collect(Collectors.joining(",", "{", "}"));
    }

    /** Write a snapshot of these values at what was applied last. */
    String snapshot(List<String> values) throws Exception {
        long offset = appliedOffset;
        int epoch = appliedEpoch;
        Method create = Arrays.stream(KafkaRaftClient.class.getMethods())
            .filter(method -> method.getName().equals("createSnapshot")).findFirst().orElseThrow();
        Object id = create.getParameterTypes()[0].getConstructor(long.class, int.class).newInstance(offset, epoch);
        @SuppressWarnings("unchecked")
        var writer = ((Optional<SnapshotWriter<byte[]>>) create.invoke(client, id, System.currentTimeMillis())).orElseThrow();
        writer.append(values.stream().map(text -> text.getBytes(StandardCharsets.UTF_8)).toList());
        writer.freeze();
        writer.close();
        return "\"" + offset + "@" + epoch + "\"";
    }

    /** A closed loop: each of N callers appends its next record when the last one is committed. */
    class Bench {
        final byte[][] values;
        final long[] began;
        final int epoch = client.leaderAndEpoch().epoch();
        final List<Long> took = new ArrayList<>();
        final CountDownLatch over;
        volatile long end;
        boolean appended;

        Bench(int callers, int size) {
            values = new byte[callers][size];
            began = new long[callers];
            over = new CountDownLatch(callers);
            for (int caller = 0; caller < callers; caller++) ByteBuffer.wrap(values[caller]).putInt(caller);
        }

        void append(int caller, long now) {
            began[caller] = now;
            client.prepareAppend(epoch, List.of(values[caller]));
            appended = true;
        }

        void committed(List<byte[]> records) {
            long now = System.nanoTime();
            for (byte[] record : records) {
                int caller = ByteBuffer.wrap(record).getInt();
                took.add(now - began[caller]);
                if (now < end) append(caller, now);
                else over.countDown();
            }
        }

        void schedule() {
            if (appended) client.schedulePreparedAppend();
            appended = false;
        }

        String run(int milliseconds) throws InterruptedException {
            long start = System.nanoTime();
            end = start + milliseconds * 1_000_000L;
            for (int caller = 0; caller < values.length; caller++) append(caller, start);
            client.schedulePreparedAppend();
            if (!over.await(milliseconds + 30_000L, TimeUnit.MILLISECONDS)) return "{\"error\":\"lost leadership\"}";
            double seconds = (System.nanoTime() - start) / 1e9;
            Collections.sort(took);
            return String.format(Locale.ROOT, "{\"commits\":%d,\"commits_per_s\":%.1f,\"p50_us\":%.1f,\"p99_us\":%.1f}",
                took.size(), took.size() / seconds, at(0.5), at(0.99));
        }

        double at(double share) {
            return took.get(Math.min(took.size() - 1, (int) (took.size() * share))) / 1e3;
        }
    }

    String answer(String[] words) throws Exception {
        switch (words[0]) {
            case "status": {
                LeaderAndEpoch leader = client.leaderAndEpoch();
                return String.format("{\"leader_id\":%s,\"epoch\":%d,\"high_watermark\":%d,\"log_end_offset\":%d,\"role\":\"%s\"}",
                    leader.leaderId().isPresent() ? leader.leaderId().getAsInt() : "null", leader.epoch(),
                    client.highWatermark().orElse(-1), client.logEndOffset(), leads() ? "leader" : "other");
            }
            case "leaders": return leaders.toString();
            case "resign": client.resign(client.leaderAndEpoch().epoch()); return "true";
            case "load": return load(Integer.parseInt(words[1]), words[2], Integer.parseInt(words[3]));
            case "snapshot": return snapshot(Arrays.asList(words).subList(1, words.length));
            case "bench": {
                bench = new Bench(Integer.parseInt(words[1]), Integer.parseInt(words[3]));
                try {
                    return bench.run(Integer.parseInt(words[2]));
                } finally {
                    bench = null;
                }
            }
            default: return "null";
        }
    }

    void takeOrders() throws IOException {
        ServerSocket server = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
        System.out.println("orders {\"port\": " + server.getLocalPort() + "}");
        while (true) {
            Socket socket = server.accept();
            new Thread(() -> {
                try (socket; var in = new BufferedReader(new InputStreamReader(socket.getInputStream()));
                     var out = new PrintWriter(socket.getOutputStream(), true)) {
                    for (String line; (line = in.readLine()) != null; ) out.println(answer(line.split(" ")));
                } catch (Exception error) {
                    error.printStackTrace();
                }
            }).start();
        }
    }

    /** Builds an object of any constructor whose parameters can be taken, in order for each type, from these parts. */
    static class Parts {
        final List<Object> parts;

        Parts(Object... parts) {
            this.parts = Arrays.asList(parts);
        }

        Object make(String... names) throws ReflectiveOperationException {
            for (String name : names) {
                Class<?> type;
                try {
                    type = Class.forName(name);
                } catch (ClassNotFoundException absent) {
                    continue;
                }
                Constructor<?>[] all = type.getConstructors();
                Arrays.sort(all, Comparator.comparingInt(one -> one.getParameterCount()));
                for (Constructor<?> constructor : all) {
                    Object[] filled = fill(constructor.getParameterTypes());
                    if (filled != null) return constructor.newInstance(filled);
                }
            }
            throw new NoSuchMethodException("no constructor of " + String.join(" or ", names) + " can be filled");
        }

        Object[] fill(Class<?>[] types) {
            List<Object> left = new ArrayList<>(parts);
            Object[] filled = new Object[types.length];
            for (int place = 0; place < types.length; place++) {
                Class<?> wanted = java.lang.invoke.MethodType.methodType(types[place]).wrap().returnType();
                int found = 0;
                while (found < left.size() && !wanted.isInstance(left.get(found))) found++;
                if (found == left.size()) return null;
                filled[place] = left.remove(found);
            }
            return filled;
        }
    }

    /** An implementation of an interface that does nothing; an absent interface yields something that fits nowhere. */
    static Object deaf(String name) {
        try {
            Class<?> type = Class.forName(name);
            return java.lang.reflect.Proxy.newProxyInstance(Peer.class.getClassLoader(), new Class<?>[] {type}, (proxy, method, values) -> null);
        } catch (ClassNotFoundException absent) {
            return new Object[0];
        }
    }

    private static FinalizedFeatures features() {
        for (String name : List.of("fromMetadataVersion", "fromKRaftVersion")) { // since 4.4, and before
            try {
                return (FinalizedFeatures) FinalizedFeatures.class.getMethod(name, MetadataVersion.class).invoke(null, MetadataVersion.latestTesting());
            } catch (NoSuchMethodException another) {
                continue;
            } catch (ReflectiveOperationException trouble) {
                throw new IllegalStateException(trouble);
            }
        }
        throw new IllegalStateException("FinalizedFeatures is made in another way now");
    }

    @SuppressWarnings("unchecked")
    public static void main(String[] arguments) throws Exception {
        Properties properties = Utils.loadProps(arguments[0]);
        KafkaConfig config = KafkaConfig.fromProps(properties, false);
        Time time = Time.SYSTEM;
        Metrics metrics = new Metrics(time);
        var mechanisms = ScramMechanism.mechanismNames();
        var credentials = new CredentialProvider(mechanisms, new DelegationTokenCache(mechanisms));
        Supplier<FinalizedFeatures> features = Peer::features;
        scala.Function0<FinalizedFeatures> alike = features::get;
        Object versions = new Parts(ListenerType.CONTROLLER, true, false, features, alike)
            .make("org.apache.kafka.server.SimpleApiVersionManager", "kafka.server.SimpleApiVersionManager");
        var network = (SocketServer) new Parts(
            config, metrics, time, credentials, versions, socketFactory(), scala.collection.immutable.Nil$.MODULE$, List.of()
        ).make("kafka.network.SocketServer");
        Map<ListenerName, InetSocketAddress> own = new HashMap<>();
        for (String place : properties.getProperty("advertised.listeners", properties.getProperty("listeners")).split(",")) {
            URI uri = URI.create(place);
            own.put(ListenerName.normalised(uri.getScheme()), InetSocketAddress.createUnresolved(uri.getHost(), uri.getPort()));
        }
        var manager = (KafkaRaftManager<byte[]>) new Parts(
            arguments[1], config, Uuid.fromString(arguments[2]), new Bytes(), PARTITION, Uuid.METADATA_TOPIC_ID, time,
            metrics, deaf("org.apache.kafka.raft.ExternalKRaftMetrics"), scala.Option.apply("peer"),
            CompletableFuture.completedFuture(QuorumConfig.parseVoterConnections(listed(properties, "controller.quorum.voters"))),
            QuorumConfig.parseBootstrapServers(listed(properties, "controller.quorum.bootstrap.servers")),
            Endpoints.fromInetSocketAddresses(own), new ProcessTerminatingFaultHandler.Builder().build()
        ).make("kafka.raft.KafkaRaftManager");
        Peer peer = new Peer();
        peer.client = manager.client();
        peer.client.register(peer);
        Object handler = new Parts(manager, network.dataPlaneRequestChannel(), time, versions).make("kafka.tools.TestRaftRequestHandler");
        var pool = (KafkaRequestHandlerPool) new Parts(
            new AtomicInteger(2), "peer", config.nodeId(), network.dataPlaneRequestChannel(), handler, time, 2, "controller",
            "controller"
        ).make("kafka.server.KafkaRequestHandlerPool");
        manager.startup();
        network.enableRequestProcessing(scala.Predef$.MODULE$.Map().empty());
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            manager.shutdown();
            pool.shutdown();
            network.shutdown();
        }));
        peer.takeOrders();
    }

    static List<String> listed(Properties properties, String name) {
        return Arrays.stream(properties.getProperty(name, "").split(",")).filter(part -> !part.isBlank()).toList();
    }

    static Object socketFactory() throws ReflectiveOperationException {
        try {
            return Class.forName("org.apache.kafka.server.ServerSocketFactory").getField("INSTANCE").get(null);
        } catch (ClassNotFoundException absent) {
            return new Object[0];
        }
    }
}
