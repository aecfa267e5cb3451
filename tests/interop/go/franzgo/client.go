package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"raftlog/interop/lines"
)

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

type led struct {
	bootstrap string
	client    *kgo.Client
	admin     *kadm.Client
}

// client BOOTSTRAP CODEC
func client(words []string) {
	made := connected(words[0], kgo.ProducerBatchCompression(codecs[words[1]]))
	l := led{words[0], made, kadm.NewClient(made)}
	lines.Steps{
		"create": l.create, "delete": l.delete, "grow": l.grow, "topics": l.topics, "set": l.set, "get": l.get,
		"produce": l.produce, "read": l.read, "ends": l.ends, "at": l.at, "truncate": l.truncate,
		"groups": l.groups, "state": l.state, "committed": l.committed, "forget": l.forget,
	}.Lead()
}

func (l led) create(words []string) (string, error) {
	ctx, cancel := within()
	defer cancel()
	found, err := l.admin.CreateTopic(ctx, lines.Number[int32](words[1]), lines.Number[int16](words[2]),
		lines.Pairs(words[3:]), words[0])
	if err == nil {
		err = found.Err
	}
	return "", err
}

func (l led) delete(words []string) (string, error) {
	ctx, cancel := within()
	defer cancel()
	found, err := l.admin.DeleteTopic(ctx, words[0])
	if err == nil {
		err = found.Err
	}
	return "", err
}

func (l led) grow(words []string) (string, error) {
	ctx, cancel := within()
	defer cancel()
	found, err := l.admin.UpdatePartitions(ctx, lines.Number[int](words[1]), words[0])
	if err == nil {
		err = found.Error()
	}
	return "", err
}

func (l led) topics([]string) (string, error) {
	ctx, cancel := within()
	defer cancel()
	found, err := l.admin.ListTopics(ctx)
	var told []string
	for _, each := range found.Sorted() {
		told = append(told, fmt.Sprintf("%s=%d", each.Topic, len(each.Partitions)))
	}
	return strings.Join(told, " "), err
}

func (l led) set(words []string) (string, error) {
	ctx, cancel := within()
	defer cancel()
	change := kadm.AlterConfig{Op: kadm.SetConfig, Name: words[1], Value: &words[2]}
	found, err := l.admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{change}, words[0])
	if err == nil {
		err = found[0].Err
	}
	return "", err
}

func (l led) get(words []string) (string, error) {
	ctx, cancel := within()
	defer cancel()
	found, err := l.admin.DescribeTopicConfigs(ctx, words[0])
	if err != nil {
		return "", err
	}
	for _, each := range found[0].Configs {
		if each.Key == words[1] {
			return each.MaybeValue(), nil
		}
	}
	return "", found[0].Err
}

func (l led) produce(words []string) (string, error) {
	ctx, cancel := within()
	defer cancel()
	record := &kgo.Record{
		Topic: words[0], Partition: lines.Number[int32](words[1]), Key: []byte(words[2]), Value: []byte(words[3]),
		Headers: []kgo.RecordHeader{{Key: "by", Value: []byte("franz-go")}},
	}
	found, err := l.client.ProduceSync(ctx, record).First()
	if err != nil {
		return "", err
	}
	return fmt.Sprint(found.Offset), nil
}

func (l led) bounds(words []string) (int64, int64, error) {
	ctx, cancel := within()
	defer cancel()
	partition := lines.Number[int32](words[1])
	first, err := l.admin.ListStartOffsets(ctx, words[0])
	if err != nil {
		return 0, 0, err
	}
	end, err := l.admin.ListEndOffsets(ctx, words[0])
	return first[words[0]][partition].Offset, end[words[0]][partition].Offset, err
}

func (l led) ends(words []string) (string, error) {
	first, end, err := l.bounds(words)
	return fmt.Sprint(first, end), err
}

// read TOPIC PARTITION [RACK] returns all of a partition, from its first record to its last one.
func (l led) read(words []string) (string, error) {
	first, end, err := l.bounds(words)
	if err != nil || first == end {
		return "", err
	}
	partition := lines.Number[int32](words[1])
	from := map[string]map[int32]kgo.Offset{words[0]: {partition: kgo.NewOffset().At(first)}}
	options := []kgo.Opt{kgo.ConsumePartitions(from), kgo.KeepControlRecords()}
	if len(words) > 2 {
		options = append(options, kgo.Rack(words[2]))
	}
	reader := connected(l.bootstrap, options...)
	defer reader.Close()
	ctx, cancel := within()
	defer cancel()
	var told []string
	for at := first; at < end; {
		found := reader.PollFetches(ctx)
		if err := found.Err0(); err != nil {
			return "", err
		}
		found.EachRecord(func(each *kgo.Record) {
			at = each.Offset + 1
			if !each.Attrs.IsControl() {
				told = append(told, lines.Record(each.Offset, each.Key, each.Value))
			}
		})
	}
	return strings.Join(told, " "), nil
}

func (l led) at(words []string) (string, error) {
	ctx, cancel := within()
	defer cancel()
	found, err := l.admin.ListOffsetsAfterMilli(ctx, lines.Number[int64](words[2]), words[0])
	return fmt.Sprint(found[words[0]][lines.Number[int32](words[1])].Offset), err
}

func (l led) truncate(words []string) (string, error) {
	ctx, cancel := within()
	defer cancel()
	before := kadm.Offsets{}
	before.Add(kadm.Offset{Topic: words[0], Partition: lines.Number[int32](words[1]), At: lines.Number[int64](words[2])})
	found, err := l.admin.DeleteRecords(ctx, before)
	if err == nil {
		err = found.Error()
	}
	return "", err
}

func (l led) groups([]string) (string, error) {
	ctx, cancel := within()
	defer cancel()
	found, err := l.admin.ListGroups(ctx)
	return strings.Join(found.Groups(), " "), err
}

func (l led) state(words []string) (string, error) {
	ctx, cancel := within()
	defer cancel()
	found, err := l.admin.DescribeGroups(ctx, words[0])
	return found[words[0]].State, err
}

func (l led) committed(words []string) (string, error) {
	ctx, cancel := within()
	defer cancel()
	found, err := l.admin.FetchOffsets(ctx, words[0])
	var told []string
	found.Each(func(each kadm.OffsetResponse) { told = append(told, fmt.Sprintf("%d=%d", each.Partition, each.At)) })
	slices.Sort(told)
	return strings.Join(told, " "), err
}

func (l led) forget(words []string) (string, error) {
	ctx, cancel := within()
	defer cancel()
	found, err := l.admin.DeleteGroup(ctx, words[0])
	if err == nil {
		err = found.Err
	}
	return "", err
}
