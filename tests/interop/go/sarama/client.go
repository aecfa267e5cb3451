package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/IBM/sarama"

	"raftlog/interop/lines"
)

var codecs = map[string]sarama.CompressionCodec{
	"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
	"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
}

type led struct {
	client   sarama.Client
	admin    sarama.ClusterAdmin
	producer sarama.SyncProducer
}

// client BOOTSTRAP CODEC
func client(words []string) {
	config := idempotent()
	config.Producer.Compression = codecs[words[1]]
	made, err := sarama.NewClient(brokers(words[0]), config)
	lines.Check(err)
	admin, err := sarama.NewClusterAdminFromClient(made)
	lines.Check(err)
	producer, err := sarama.NewSyncProducerFromClient(made)
	lines.Check(err)
	l := led{made, admin, producer}
	lines.Steps{
		"create": l.create, "delete": l.delete, "grow": l.grow, "topics": l.topics, "set": l.set, "get": l.get,
		"produce": l.produce, "read": l.read, "ends": l.ends, "at": l.at, "truncate": l.truncate,
		"groups": l.groups, "state": l.state, "committed": l.committed, "forget": l.forget,
	}.Lead()
}

func (l led) create(words []string) (string, error) {
	return "", l.admin.CreateTopic(words[0], &sarama.TopicDetail{
		NumPartitions:     lines.Number[int32](words[1]),
		ReplicationFactor: lines.Number[int16](words[2]),
		ConfigEntries:     lines.Pairs(words[3:]),
	}, false)
}

func (l led) delete(words []string) (string, error) { return "", l.admin.DeleteTopic(words[0]) }

func (l led) grow(words []string) (string, error) {
	return "", l.admin.CreatePartitions(words[0], lines.Number[int32](words[1]), nil, false)
}

func (l led) topics([]string) (string, error) {
	found, err := l.admin.ListTopics()
	var told []string
	for name, each := range found {
		told = append(told, fmt.Sprintf("%s=%d", name, each.NumPartitions))
	}
	return strings.Join(told, " "), err
}

func (l led) set(words []string) (string, error) {
	entry := sarama.IncrementalAlterConfigsEntry{Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &words[2]}
	entries := map[string]sarama.IncrementalAlterConfigsEntry{words[1]: entry}
	return "", l.admin.IncrementalAlterConfig(sarama.TopicResource, words[0], entries, false)
}

func (l led) get(words []string) (string, error) {
	resource := sarama.ConfigResource{Type: sarama.TopicResource, Name: words[0], ConfigNames: words[1:]}
	found, err := l.admin.DescribeConfig(resource)
	for _, each := range found {
		if each.Name == words[1] {
			return each.Value, err
		}
	}
	return "", err
}

func (l led) produce(words []string) (string, error) {
	record := message(words[0], lines.Number[int32](words[1]), words[3])
	record.Key = sarama.StringEncoder(words[2])
	record.Headers = []sarama.RecordHeader{{Key: []byte("by"), Value: []byte("sarama")}}
	_, offset, err := l.producer.SendMessage(record)
	return fmt.Sprint(offset), err
}

func (l led) bounds(words []string) (first, end int64, err error) {
	partition := lines.Number[int32](words[1])
	if first, err = l.client.GetOffset(words[0], partition, sarama.OffsetOldest); err == nil {
		end, err = l.client.GetOffset(words[0], partition, sarama.OffsetNewest)
	}
	return first, end, err
}

func (l led) ends(words []string) (string, error) {
	first, end, err := l.bounds(words)
	return fmt.Sprint(first, end), err
}

// read returns all of a partition, from its first record to its last one.
func (l led) read(words []string) (string, error) {
	first, end, err := l.bounds(words)
	if err != nil || first == end {
		return "", err
	}
	consumer, err := sarama.NewConsumerFromClient(l.client)
	if err != nil {
		return "", err
	}
	reader, err := consumer.ConsumePartition(words[0], lines.Number[int32](words[1]), first)
	if err != nil {
		return "", err
	}
	defer reader.Close()
	var told []string
	for each := range reader.Messages() {
		told = append(told, lines.Record(each.Offset, each.Key, each.Value))
		if each.Offset+1 >= end {
			break
		}
	}
	return strings.Join(told, " "), nil
}

func (l led) at(words []string) (string, error) {
	found, err := l.client.GetOffset(words[0], lines.Number[int32](words[1]), lines.Number[int64](words[2]))
	return fmt.Sprint(found), err
}

func (l led) truncate(words []string) (string, error) {
	before := map[int32]int64{lines.Number[int32](words[1]): lines.Number[int64](words[2])}
	return "", l.admin.DeleteRecords(words[0], before)
}

func (l led) groups([]string) (string, error) {
	found, err := l.admin.ListConsumerGroups()
	var told []string
	for name := range found {
		told = append(told, name)
	}
	return strings.Join(told, " "), err
}

func (l led) state(words []string) (string, error) {
	found, err := l.admin.DescribeConsumerGroups(words)
	if err != nil {
		return "", err
	}
	return found[0].State, nil
}

func (l led) committed(words []string) (string, error) {
	found, err := l.admin.ListConsumerGroupOffsets(words[0], nil)
	if err != nil {
		return "", err
	}
	var told []string
	for _, partitions := range found.Blocks {
		for partition, each := range partitions {
			told = append(told, fmt.Sprintf("%d=%d", partition, each.Offset))
		}
	}
	slices.Sort(told)
	return strings.Join(told, " "), nil
}

func (l led) forget(words []string) (string, error) { return "", l.admin.DeleteConsumerGroup(words[0]) }
