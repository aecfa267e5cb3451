// Sarama as a member of a group, a copier, a transactional producer, a writer, and a client that is led.
package main

import (
	"os"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"raftlog/interop/lines"
)

func main() {
	words := os.Args[2:]
	switch os.Args[1] {
	case "member":
		member(words)
	case "copier":
		copier(words)
	case "transactor":
		transactor(words)
	case "writer":
		writer(words, idempotent())
	case "plain-writer":
		config := idempotent()
		config.Producer.Idempotent = false
		writer(words, config)
	case "client":
		client(words)
	}
}

func brokers(bootstrap string) []string { return strings.Split(bootstrap, ",") }

// idempotent returns the settings of clients.md: retries that outlast a failover, and no record twice.
func idempotent() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	config.Metadata.RefreshFrequency = time.Second
	config.Metadata.Retry.Max = 20
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Idempotent = true
	config.Producer.Retry.Max = 100
	config.Net.MaxOpenRequests = 1
	return config
}

func transactional(id string, timeout time.Duration) *sarama.Config {
	config := idempotent()
	config.Producer.Transaction.ID = id
	config.Producer.Transaction.Timeout = timeout
	return config
}

func joining(words []string) sarama.ConsumerGroup {
	config := idempotent()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	config.Consumer.Group.Session.Timeout = lines.Session
	config.Consumer.Group.Heartbeat.Interval = lines.Heartbeat
	config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyRoundRobin()}
	if len(words) > 4 {
		config.Consumer.Group.Session.Timeout = lines.StaticSession
		config.Consumer.Group.InstanceId = words[4]
	}
	group, err := sarama.NewConsumerGroup(brokers(words[0]), words[2], config)
	lines.Check(err)
	return group
}

// transactor BOOTSTRAP ID TIMEOUT_MS
func transactor(words []string) {
	config := transactional(words[1], time.Duration(lines.Number[int64](words[2]))*time.Millisecond)
	var producer sarama.SyncProducer
	do := func(what func() error) func([]string) (string, error) {
		return func([]string) (string, error) { return "", what() }
	}
	lines.Steps{
		"init": do(func() (err error) {
			producer, err = sarama.NewSyncProducer(brokers(words[0]), config)
			return err
		}),
		"begin": do(func() error { return producer.BeginTxn() }),
		"send": func(words []string) (string, error) {
			_, _, err := producer.SendMessage(message(words[0], lines.Number[int32](words[1]), words[2]))
			return "", err
		},
		"offset": func(words []string) (string, error) {
			metadata := sarama.PartitionOffsetMetadata{
				Partition: lines.Number[int32](words[2]), Offset: lines.Number[int64](words[3]),
			}
			offsets := map[string][]*sarama.PartitionOffsetMetadata{words[1]: {&metadata}}
			return "", producer.AddOffsetsToTxn(offsets, words[0])
		},
		"flush":  do(func() error { return nil }),
		"commit": do(func() error { return producer.CommitTxn() }),
		"abort":  do(func() error { return producer.AbortTxn() }),
	}.Lead()
}

func message(topic string, partition int32, value string) *sarama.ProducerMessage {
	return &sarama.ProducerMessage{Topic: topic, Partition: partition, Value: sarama.StringEncoder(value)}
}

// writer BOOTSTRAP TOPIC NAME PARTITIONS RATE
func writer(words []string, config *sarama.Config) {
	producer, err := sarama.NewAsyncProducer(brokers(words[0]), config)
	lines.Check(err)
	go func() {
		for each := range producer.Successes() {
			each.Metadata.(func(error))(nil)
		}
	}()
	go func() {
		for each := range producer.Errors() {
			each.Msg.Metadata.(func(error))(each.Err)
		}
	}()
	lines.Paced(words[2], lines.Number[int32](words[3]), lines.Number[int](words[4]),
		func(partition int32, value string, done func(error)) {
			record := message(words[1], partition, value)
			record.Metadata = done
			producer.Input() <- record
		})
	lines.Check(producer.Close())
}
