package raftlog;

import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/** Subscribed consumers that tell which partitions they have (`has 0 2`) and give up (`gave 2`). */
final class Consumers {
    private static final Map<String, String> ASSIGNORS = Map.of(
            "range", "org.apache.kafka.clients.consumer.RangeAssignor",
            "roundrobin", "org.apache.kafka.clients.consumer.RoundRobinAssignor",
            "sticky", "org.apache.kafka.clients.consumer.StickyAssignor",
            "cooperative-sticky", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");

    private Consumers() {}

    /**
     * The words are BOOTSTRAP TOPIC GROUP ASSIGNOR [INSTANCE]. The assignor `consumer` is the protocol of KIP-848, where the broker
     * assigns; a topic that begins with ^ is a pattern, then also evaluated there; an instance is a static member. Never
     * commits by itself.
     */
    static KafkaConsumer<String, String> subscribed(String[] words) {
        String topic = words[1];
        String assignor = words[3];
        Properties settings = new Properties();
        settings.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, words[0]);
        settings.put(ConsumerConfig.GROUP_ID_CONFIG, words[2]);
        if (words.length > 4) {
            settings.put(ConsumerConfig.GROUP_INSTANCE_ID_CONFIG, words[4]);
        }
        settings.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
        settings.put(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, "false");
        settings.put(ConsumerConfig.ISOLATION_LEVEL_CONFIG, "read_committed");
        settings.put(ConsumerConfig.METADATA_MAX_AGE_CONFIG, "1000");
        if (assignor.equals("consumer")) {
            settings.put(ConsumerConfig.GROUP_PROTOCOL_CONFIG, "consumer");
        } else {
            settings.put(ConsumerConfig.PARTITION_ASSIGNMENT_STRATEGY_CONFIG, ASSIGNORS.get(assignor));
            settings.put(ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG, words.length > 4 ? "20000" : "6000");
            settings.put(ConsumerConfig.HEARTBEAT_INTERVAL_MS_CONFIG, "500");
        }
        KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        ConsumerRebalanceListener listener = new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> added) {
                Lines.tell("has " + numbers(consumer.assignment()));
            }

            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> revoked) {
                Lines.tell("gave " + numbers(revoked));
            }

            @Override
            public void onPartitionsLost(Collection<TopicPartition> lost) {
                onPartitionsRevoked(lost);
            }
        };
        if (!topic.startsWith("^")) {
            consumer.subscribe(List.of(topic), listener);
        } else if (assignor.equals("consumer")) {
            consumer.subscribe(new SubscriptionPattern(topic), listener);
        } else {
            consumer.subscribe(Pattern.compile(topic), listener);
        }
        return consumer;
    }

    private static String numbers(Collection<TopicPartition> places) {
        return places.stream().map(TopicPartition::partition).sorted().map(String::valueOf)
                .collect(Collectors.joining(" "));
    }
}
