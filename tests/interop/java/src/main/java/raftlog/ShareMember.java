package raftlog;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * One member of a share group with explicit acknowledgement and a strict limit of records, `ShareMember BOOTSTRAP TOPIC GROUP LIMIT`.
 * It answers each line of its input with one line: `poll` with the values and their delivery counts (`a:1 b:2`), `accept VALUE`
 * and the other types with `noted`, `commit` with how many partitions answered, or with the errors of those that refused.
 */
public final class ShareMember {
    private ShareMember() {}

    public static void main(String[] words) throws Exception {
        Properties settings = new Properties();
        settings.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, words[0]);
        settings.put(ConsumerConfig.GROUP_ID_CONFIG, words[2]);
        settings.put(ConsumerConfig.MAX_POLL_RECORDS_CONFIG, words[3]);
        settings.put(ConsumerConfig.SHARE_ACKNOWLEDGEMENT_MODE_CONFIG, "explicit");
        settings.put(ConsumerConfig.SHARE_ACQUIRE_MODE_CONFIG, "record_limit");
        Map<String, ConsumerRecord<String, String>> held = new HashMap<>();
        try (KafkaShareConsumer<String, String> consumer =
                new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(words[1]));
            for (String line = Lines.INPUT.readLine(); line != null; line = Lines.INPUT.readLine()) {
                String[] parts = line.split(" ");
                if (parts[0].equals("poll")) {
                    Lines.tell(polled(consumer, held));
                } else if (parts[0].equals("commit")) {
                    Lines.tell(committed(consumer));
                } else {
                    consumer.acknowledge(held.get(parts[1]), AcknowledgeType.valueOf(parts[0].toUpperCase()));
                    Lines.tell("noted");
                }
            }
        }
    }

    private static String polled(
            KafkaShareConsumer<String, String> consumer, Map<String, ConsumerRecord<String, String>> held) {
        List<String> found = new ArrayList<>();
        for (ConsumerRecord<String, String> each : consumer.poll(Duration.ofMillis(500))) {
            held.put(each.value(), each);
            found.add(each.value() + ":" + each.deliveryCount().get());
        }
        return String.join(" ", found);
    }

    private static String committed(KafkaShareConsumer<String, String> consumer) {
        int fine = 0;
        for (Optional<KafkaException> each : consumer.commitSync().values()) {
            if (each.isPresent()) {
                return each.get().toString();
            }
            fine++;
        }
        return String.valueOf(fine);
    }
}
