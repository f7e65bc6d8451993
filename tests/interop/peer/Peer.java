// Kafka's own raft client as a peer of ours: opaque records, no controller on top. Compiled on first use (peer.py).
//
//     java Peer FILE.properties CLUSTER_ID DIRECTORY_ID
//
// It prints `orders PORT`; whoever connects there gives one order a line and gets one line of JSON:
//     status | leaders | resign | load COUNT PREFIX CALLERS | snapshot VALUES
import java.io.*;
import java.net.*;
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;
import kafka.network.SocketServer;
import kafka.raft.KafkaRaftManager;
import kafka.server.*;
import kafka.tools.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.message.ApiMessageType.ListenerType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.security.scram.internals.ScramMechanism;
import org.apache.kafka.common.security.token.delegation.internals.DelegationTokenCache;
import org.apache.kafka.common.utils.*;
import org.apache.kafka.raft.*;
import org.apache.kafka.security.CredentialProvider;
import org.apache.kafka.server.*;
import org.apache.kafka.server.common.*;
import org.apache.kafka.server.fault.ProcessTerminatingFaultHandler;
import org.apache.kafka.snapshot.*;

public class Peer implements org.apache.kafka.raft.RaftClient.Listener<byte[]> {
    static final TopicPartition PARTITION = new TopicPartition("__cluster_metadata", 0);

    final List<String> leaders = Collections.synchronizedList(new ArrayList<>());
    final Map<String, Semaphore> waiting = new ConcurrentHashMap<>();
    final Map<String, Long> committed = new ConcurrentHashMap<>();
    volatile OffsetAndEpoch applied = new OffsetAndEpoch(0, 0);
    KafkaRaftClient<byte[]> client;

    public void handleCommit(BatchReader<byte[]> reader) {
        try (reader) {
            while (reader.hasNext()) {
                Batch<byte[]> batch = reader.next();
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
                applied = new OffsetAndEpoch(batch.lastOffset() + 1, batch.epoch());
            }
        }
    }

    public void handleLoadSnapshot(SnapshotReader<byte[]> reader) {
        applied = reader.snapshotId();
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
    String snapshot(List<String> values) {
        OffsetAndEpoch id = applied;
        SnapshotWriter<byte[]> writer = client.createSnapshot(id, System.currentTimeMillis()).orElseThrow();
        writer.append(values.stream().map(text -> text.getBytes(StandardCharsets.UTF_8)).toList());
        writer.freeze();
        writer.close();
        return "\"" + id.offset() + "@" + id.epoch() + "\"";
    }

    String answer(String[] words) throws InterruptedException {
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

    public static void main(String[] arguments) throws Exception {
        KafkaConfig config = KafkaConfig.fromProps(Utils.loadProps(arguments[0]), false);
        Time time = Time.SYSTEM;
        Metrics metrics = new Metrics(time);
        var mechanisms = ScramMechanism.mechanismNames();
        var credentials = new CredentialProvider(mechanisms, new DelegationTokenCache(mechanisms));
        var versions = new SimpleApiVersionManager(
            ListenerType.CONTROLLER, true, () -> FinalizedFeatures.fromKRaftVersion(MetadataVersion.MINIMUM_VERSION));
        SocketServer network = new SocketServer(
            config, metrics, time, credentials, versions, ServerSocketFactory.INSTANCE, SocketServer.$lessinit$greater$default$7());
        Map<ListenerName, InetSocketAddress> own = new HashMap<>();
        config.effectiveAdvertisedControllerListeners().foreach(place -> own.put(
            ListenerName.normalised(place.listener()), InetSocketAddress.createUnresolved(place.host(), place.port())));
        KafkaRaftManager<byte[]> manager = new KafkaRaftManager<>(
            arguments[1], config, Uuid.fromString(arguments[2]), new TestRaftServer.ByteArraySerde(), PARTITION,
            Uuid.METADATA_TOPIC_ID, time, metrics, ignored -> { }, scala.Option.apply("peer"),
            CompletableFuture.completedFuture(QuorumConfig.parseVoterConnections(config.quorumConfig().voters())),
            QuorumConfig.parseBootstrapServers(config.quorumConfig().bootstrapServers()),
            Endpoints.fromInetSocketAddresses(own), new ProcessTerminatingFaultHandler.Builder().build());
        Peer peer = new Peer();
        peer.client = manager.client();
        peer.client.register(peer);
        var handler = new TestRaftRequestHandler(manager, network.dataPlaneRequestChannel(), time, versions);
        var pool = new KafkaRequestHandlerPool(
            new AtomicInteger(2), "peer", config.nodeId(), network.dataPlaneRequestChannel(), handler, time, 2, "controller");
        manager.startup();
        network.enableRequestProcessing(scala.Predef$.MODULE$.Map().empty());
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            manager.shutdown();
            pool.shutdown();
            network.shutdown();
        }));
        peer.takeOrders();
    }
}
