package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"

	"raftlog/interop/lines"
)

var codecs = map[string]kafka.Compression{
	"none": 0, "gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd,
}

type led struct {
	bootstrap string
	codec     kafka.Compression
	client    *kafka.Client
}

// client BOOTSTRAP CODEC
func client(words []string) {
	// each line may follow what another client changed, so it asks for metadata anew
	transport := &kafka.Transport{MetadataTTL: 50 * time.Millisecond}
	l := led{words[0], codecs[words[1]], &kafka.Client{
		Addr: kafka.TCP(brokers(words[0])...), Timeout: lines.Step, Transport: transport,
	}}
	lines.Steps{
		"create": l.create, "delete": l.delete, "grow": l.grow, "topics": l.topics, "set": l.set, "get": l.get,
		"produce": l.produce, "read": l.read, "ends": l.ends, "at": l.at,
		"groups": l.groups, "state": l.state, "committed": l.committed, "forget": l.forget,
	}.Lead()
}

func (l led) create(words []string) (string, error) {
	ctx, cancel := within()
	defer cancel()
	var configs []kafka.ConfigEntry
	for name, value := range lines.Pairs(words[3:]) {
		configs = append(configs, kafka.ConfigEntry{ConfigName: name, ConfigValue: *value})
	}
	found, err := l.client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{
		Topic:             words[0],
		NumPartitions:     lines.Number[int](words[1]),
		ReplicationFactor: lines.Number[int](words[2]),
		ConfigEntries:     configs,
	}}})
	if err != nil {
		return "", err
	}
	return "", found.Errors[words[0]]
}

func (l led) delete(words []string) (string, error) {
	ctx, cancel := within()
	defer cancel()
	found, err := l.client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: words})
	if err != nil {
		return "", err
	}
	return "", found.Errors[words[0]]
}

func (l led) grow(words []string) (string, error) {
	ctx, cancel := within()
	defer cancel()
	found, err := l.client.CreatePartitions(ctx, &kafka.CreatePartitionsRequest{
		Topics: []kafka.TopicPartitionsConfig{{Name: words[0], Count: lines.Number[int32](words[1])}},
	})
	if err != nil {
		return "", err
	}
	return "", found.Errors[words[0]]
}

func (l led) topics([]string) (string, error) {
	ctx, cancel := within()
	defer cancel()
	found, err := l.client.Metadata(ctx, &kafka.MetadataRequest{})
	if err != nil {
		return "", err
	}
	var told []string
	for _, each := range found.Topics {
		told = append(told, fmt.Sprintf("%s=%d", each.Name, len(each.Partitions)))
	}
	return strings.Join(told, " "), nil
}

func (l led) set(words []string) (string, error) {
	ctx, cancel := within()
	defer cancel()
	found, err := l.client.IncrementalAlterConfigs(ctx, &kafka.IncrementalAlterConfigsRequest{
		Resources: []kafka.IncrementalAlterConfigsRequestResource{{
			ResourceType: kafka.ResourceTypeTopic,
			ResourceName: words[0],
			Configs: []kafka.IncrementalAlterConfigsRequestConfig{
				{Name: words[1], Value: words[2], ConfigOperation: kafka.ConfigOperationSet},
			},
		}},
	})
	if err != nil {
		return "", err
	}
	return "", found.Resources[0].Error
}

func (l led) get(words []string) (string, error) {
	ctx, cancel := within()
	defer cancel()
	found, err := l.client.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{
		Resources: []kafka.DescribeConfigRequestResource{
			{ResourceType: kafka.ResourceTypeTopic, ResourceName: words[0], ConfigNames: words[1:]},
		},
	})
	if err != nil {
		return "", err
	}
	for _, each := range found.Resources[0].ConfigEntries {
		if each.ConfigName == words[1] {
			return each.ConfigValue, nil
		}
	}
	return "", found.Resources[0].Error
}

func (l led) produce(words []string) (string, error) {
	ctx, cancel := within()
	defer cancel()
	for {
		found, err := l.client.Produce(ctx, &kafka.ProduceRequest{
			Topic:        words[0],
			Partition:    lines.Number[int](words[1]),
			RequiredAcks: kafka.RequireAll,
			Compression:  l.codec,
			Records: kafka.NewRecordReader(kafka.Record{
				Key: kafka.NewBytes([]byte(words[2])), Value: kafka.NewBytes([]byte(words[3])), Time: time.Now(),
				Headers: []kafka.Header{{Key: "by", Value: []byte("kafka-go")}},
			}),
		})
		if errors.Is(err, kafka.UnknownTopicOrPartition) && ctx.Err() == nil {
			time.Sleep(lines.Poll) // a Client asks once, and a broker may not know yet what another one made
			continue
		}
		if err == nil {
			err = found.Error
		}
		if err != nil {
			return "", err
		}
		return fmt.Sprint(found.BaseOffset), nil
	}
}

func (l led) offsets(topic string, asked ...kafka.OffsetRequest) (kafka.PartitionOffsets, error) {
	ctx, cancel := within()
	defer cancel()
	found, err := l.client.ListOffsets(ctx, &kafka.ListOffsetsRequest{
		Topics: map[string][]kafka.OffsetRequest{topic: asked},
	})
	if err != nil {
		return kafka.PartitionOffsets{}, err
	}
	return found.Topics[topic][0], found.Topics[topic][0].Error
}

func (l led) bounds(words []string) (kafka.PartitionOffsets, error) {
	partition := lines.Number[int](words[1])
	return l.offsets(words[0], kafka.FirstOffsetOf(partition), kafka.LastOffsetOf(partition))
}

func (l led) ends(words []string) (string, error) {
	found, err := l.bounds(words)
	return fmt.Sprint(found.FirstOffset, found.LastOffset), err
}

// read returns all of a partition, from its first record to its last one, and fails if a record comes again.
func (l led) read(words []string) (string, error) {
	bounds, err := l.bounds(words)
	if err != nil || bounds.FirstOffset == bounds.LastOffset {
		return "", err
	}
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: brokers(l.bootstrap), Topic: words[0], Partition: lines.Number[int](words[1]),
		MinBytes: 1, MaxBytes: 1e6, MaxWait: lines.Poll,
	})
	defer reader.Close()
	ctx, cancel := within()
	defer cancel()
	var told []string
	for at := bounds.FirstOffset; at < bounds.LastOffset; {
		each, err := reader.ReadMessage(ctx)
		if err != nil {
			return "", err
		}
		if each.Offset < at {
			return "", fmt.Errorf("offset %d was read again after %d", each.Offset, at-1)
		}
		at = each.Offset + 1
		told = append(told, lines.Record(each.Offset, each.Key, each.Value))
	}
	return strings.Join(told, " "), nil
}

func (l led) at(words []string) (string, error) {
	moment := time.UnixMilli(lines.Number[int64](words[2]))
	found, err := l.offsets(words[0], kafka.TimeOffsetOf(lines.Number[int](words[1]), moment))
	for offset := range found.Offsets {
		return fmt.Sprint(offset), err
	}
	return "-1", err
}

func (l led) groups([]string) (string, error) {
	ctx, cancel := within()
	defer cancel()
	var told []string
	nodes, err := l.client.Metadata(ctx, &kafka.MetadataRequest{})
	if err != nil {
		return "", err
	}
	for _, node := range nodes.Brokers { // a group is listed by its coordinator alone
		addr := kafka.TCP(fmt.Sprintf("%s:%d", node.Host, node.Port))
		found, err := l.client.ListGroups(ctx, &kafka.ListGroupsRequest{Addr: addr})
		if err != nil || found.Error != nil {
			return "", errors.Join(err, found.Error)
		}
		for _, each := range found.Groups {
			told = append(told, each.GroupID)
		}
	}
	return strings.Join(told, " "), nil
}

func (l led) state(words []string) (string, error) {
	ctx, cancel := within()
	defer cancel()
	found, err := l.client.DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: words})
	if err != nil {
		return "", err
	}
	return found.Groups[0].GroupState, found.Groups[0].Error
}

func (l led) committed(words []string) (string, error) {
	ctx, cancel := within()
	defer cancel()
	partitions := []int{}
	for index := range lines.Number[int](words[2]) {
		partitions = append(partitions, index)
	}
	found, err := l.client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{
		GroupID: words[0], Topics: map[string][]int{words[1]: partitions},
	})
	if err != nil {
		return "", err
	}
	var told []string
	for _, each := range found.Topics[words[1]] {
		told = append(told, fmt.Sprintf("%d=%d", each.Partition, each.CommittedOffset))
	}
	return strings.Join(told, " "), found.Error
}

func (l led) forget(words []string) (string, error) {
	ctx, cancel := within()
	defer cancel()
	found, err := l.client.DeleteGroups(ctx, &kafka.DeleteGroupsRequest{GroupIDs: words})
	if err != nil {
		return "", err
	}
	return "", found.Errors[words[0]]
}
