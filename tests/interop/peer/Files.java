// Reads and writes files with Kafka's own classes: one order a line on standard input, one line comes back for each.
//
//     quorum-state FILE | leader-epoch-checkpoint FILE | partition.metadata FILE | meta.properties FILE
//     batch FILE CODEC BASE_OFFSET EPOCH VALUE...        adds a batch of these texts to a segment
import java.io.*;
import java.lang.reflect.Array;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.metadata.properties.MetaProperties;
import org.apache.kafka.raft.FileQuorumStateStore;
import org.apache.kafka.storage.internals.checkpoint.*;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;

public class Files {
    static String answer(String[] words) throws Exception {
        File file = new File(words[1]);
        LogDirFailureChannel failures = new LogDirFailureChannel(1);
        switch (words[0]) {
            case "quorum-state": {
                var found = new FileQuorumStateStore(file).readElectionState().orElseThrow();
                var voted = found.optionalVotedKey();
                return found.epoch() + " " + found.leaderIdOrSentinel() + " " + voted.map(key -> key.id()).orElse(-1) + " "
                    + voted.flatMap(key -> key.directoryId()).map(Object::toString).orElse("-");
            }
            case "leader-epoch-checkpoint": return new LeaderEpochCheckpointFile(file, failures).read().toString();
            case "partition.metadata": return new PartitionMetadataFile(file, failures).read().topicId().toString();
            case "meta.properties": {
                Properties found = new Properties();
                try (var in = new FileInputStream(file)) {
                    found.load(in);
                }
                return new MetaProperties.Builder(found).build().toString();
            }
            case "batch": {
                try (var out = new FileOutputStream(file, true)) {
                    byte[][] values = Arrays.stream(words).skip(5).map(text -> text.getBytes(StandardCharsets.UTF_8)).toArray(byte[][]::new);
                    ByteBuffer batch = batch(words[2], Long.parseLong(words[3]), Integer.parseInt(words[4]), values);
                    out.write(batch.array(), batch.arrayOffset() + batch.position(), batch.remaining());
                }
                return "written";
            }
            default: throw new IllegalArgumentException(words[0]);
        }
    }

    /** Encode a batch; the classes for that moved to another package in 4.3. */
    static ByteBuffer batch(String codec, long baseOffset, int epoch, byte[][] values) throws Exception {
        Class<?> record = either("SimpleRecord");
        Object records = Array.newInstance(record, values.length);
        for (int number = 0; number < values.length; number++)
            Array.set(records, number, record.getConstructor(byte[].class).newInstance((Object) values[number]));
        Compression compression = Compression.of(codec).build();
        Method encode = either("MemoryRecords").getMethod("withRecords", long.class, Compression.class, int.class, records.getClass());
        Object encoded = encode.invoke(null, baseOffset, compression, epoch, records);
        return (ByteBuffer) encoded.getClass().getMethod("buffer").invoke(encoded);
    }

    static Class<?> either(String name) throws ClassNotFoundException {
        try {
            return Class.forName("org.apache.kafka.common.record.internal." + name);
        } catch (ClassNotFoundException older) {
            return Class.forName("org.apache.kafka.common.record." + name);
        }
    }

    public static void main(String[] arguments) throws Exception {
        var in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) System.out.println(answer(line.split(" ")));
    }
}
