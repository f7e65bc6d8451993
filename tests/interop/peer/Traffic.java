// Produces without end to the topics `plain` (idempotent, three partitions) and `exact` (in transactions of ten, one
// partition) until its standard input ends; then reads both. Arguments: BOOTSTRAP. It prints
//
//     plain N MS      the value N was acknowledged, after so many ms
//     exact N MS      so many values are committed, and the last transaction took so many ms
//     renewed WHY     the transactional producer was made anew, and goes on behind what is committed
//     read TOPIC N    at the end: a value, as a consumer that reads what is committed finds it
//     done
import java.time.Duration;
import java.util.*;
import java.util.concurrent.Semaphore;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.serialization.*;

public class Traffic {
    static final int TRANSACTION = 10;
    static String servers;
    static volatile boolean over;

    static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    static KafkaProducer<String, String> producer(String transactionalId) {
        Properties how = new Properties();
        how.put("bootstrap.servers", servers);
        how.put("acks", "all");
        how.put("enable.idempotence", "true");
        how.put("linger.ms", "0");
        how.put("delivery.timeout.ms", "60000");
        how.put("request.timeout.ms", "5000");
        how.put("max.block.ms", "60000");
        if (transactionalId != null) how.put("transactional.id", transactionalId);
        return new KafkaProducer<>(how, new StringSerializer(), new StringSerializer());
    }

    static void plain() {
        // No more than this many on the way: each waits for its acknowledgement.
        Semaphore room = new Semaphore(20);
        try (KafkaProducer<String, String> producer = producer(null)) {
            for (int number = 0; !over; number++) {
                int value = number;
                long began = System.nanoTime();
                room.acquireUninterruptibly();
                producer.send(new ProducerRecord<>("plain", number % 3, null, "" + number), (placed, error) -> {
                    room.release();
                    if (error == null) say("plain " + value + " " + (System.nanoTime() - began) / 1_000_000);
                    else say("failed " + value + " " + error);
                });
                pause(2);
            }
        }
    }

    static void exact() {
        int committed = 0;
        while (!over) {
            try (KafkaProducer<String, String> producer = producer("exact")) {
                producer.initTransactions();  // what an earlier producer left is committed or aborted now
                committed = read("exact").size();
                while (!over) {
                    long began = System.nanoTime();
                    try {
                        producer.beginTransaction();
                        for (int number = committed; number < committed + TRANSACTION; number++)
                            producer.send(new ProducerRecord<>("exact", 0, null, "" + number));
                        commit(producer);
                    } catch (ProducerFencedException | OutOfOrderSequenceException | AuthorizationException fatal) {
                        throw fatal;
                    } catch (KafkaException error) {
                        say("aborted " + error);
                        producer.abortTransaction();
                        continue;
                    }
                    committed += TRANSACTION;
                    say("exact " + committed + " " + (System.nanoTime() - began) / 1_000_000);
                    pause(20);
                }
            } catch (KafkaException error) {
                say("renewed " + error);
            }
        }
    }

    /** Commit; a commit without an answer is asked for again, which never commits twice. */
    static void commit(KafkaProducer<String, String> producer) {
        while (true) {
            try {
                producer.commitTransaction();
                return;
            } catch (TimeoutException error) {
                say("again " + error);
            }
        }
    }

    static List<String> read(String topic) {
        Properties how = new Properties();
        how.put("bootstrap.servers", servers);
        how.put("isolation.level", "read_committed");
        how.put("enable.auto.commit", "false");
        List<String> found = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(how, new StringDeserializer(), new StringDeserializer())) {
            List<TopicPartition> places = new ArrayList<>();
            consumer.partitionsFor(topic).forEach(place -> places.add(new TopicPartition(topic, place.partition())));
            consumer.assign(places);
            consumer.seekToBeginning(places);
            Map<TopicPartition, Long> ends = consumer.endOffsets(places);
            while (places.stream().anyMatch(place -> consumer.position(place) < ends.get(place)))
                consumer.poll(Duration.ofMillis(200)).forEach(record -> found.add(record.value()));
        }
        return found;
    }

    static void pause(int ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException error) {
            over = true;
        }
    }

    public static void main(String[] arguments) throws Exception {
        servers = arguments[0];
        List<Thread> threads = List.of(new Thread(Traffic::plain), new Thread(Traffic::exact));
        threads.forEach(Thread::start);
        while (System.in.read() >= 0) { }
        over = true;
        for (Thread thread : threads) thread.join();
        for (String topic : List.of("plain", "exact"))
            for (String value : read(topic)) say("read " + topic + " " + value);
        say("done");
    }
}
