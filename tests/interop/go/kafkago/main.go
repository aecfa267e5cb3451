// kafka-go as a member of a group, a writer, and a client that is led. It has neither idempotence nor transactions.
package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"

	"raftlog/interop/lines"
)

func main() {
	words := os.Args[2:]
	switch os.Args[1] {
	case "member":
		member(words)
	case "writer":
		writer(words)
	case "client":
		client(words)
	}
}

func within() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), lines.Step)
}

func brokers(bootstrap string) []string { return strings.Split(bootstrap, ",") }

// member BOOTSTRAP TOPIC GROUP ASSIGNOR
func member(words []string) {
	group, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID:                    words[2],
		Brokers:               brokers(words[0]),
		Topics:                []string{words[1]},
		GroupBalancers:        []kafka.GroupBalancer{kafka.RoundRobinGroupBalancer{}},
		SessionTimeout:        lines.Session,
		RebalanceTimeout:      lines.Session,
		HeartbeatInterval:     lines.Heartbeat,
		JoinGroupBackoff:      lines.Poll,
		WatchPartitionChanges: true,
	})
	lines.Check(err)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-lines.Ended()
		cancel()
		lines.Check(group.Close()) // which leaves, and ends the generation
	}()
	var share lines.Share
	for ctx.Err() == nil {
		generation, err := group.Next(ctx)
		if err != nil {
			if !errors.Is(err, context.Canceled) && !errors.Is(err, kafka.ErrGroupClosed) {
				lines.Tell("undone", err)
			}
			continue
		}
		var owned []int32
		for _, each := range generation.Assignments[words[1]] {
			owned = append(owned, int32(each.ID))
			generation.Start(func(ctx context.Context) { read(ctx, words, generation, each) })
		}
		share.Gains(owned)
		generation.Start(func(ctx context.Context) {
			<-ctx.Done()
			share.Loses(owned)
		})
	}
}

func read(ctx context.Context, words []string, generation *kafka.Generation, from kafka.PartitionAssignment) {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: brokers(words[0]), Topic: words[1], Partition: from.ID, MaxWait: lines.Poll, MinBytes: 1, MaxBytes: 1e6,
	})
	defer reader.Close()
	lines.Check(reader.SetOffset(from.Offset))
	for ctx.Err() == nil {
		each, err := reader.ReadMessage(ctx)
		if err != nil {
			continue
		}
		lines.Tell("read", string(each.Value))
		if each.Offset+1 < each.HighWaterMark {
			continue
		}
		next := map[string]map[int]int64{words[1]: {from.ID: each.Offset + 1}}
		if err := generation.CommitOffsets(next); err != nil {
			lines.Tell("undone", err) // the next owner reads it again
		}
	}
}

type written struct {
	partition int
	done      func(error)
	completed func(error)
}

// writer BOOTSTRAP TOPIC NAME PARTITIONS RATE
func writer(words []string) {
	var writer kafka.Writer
	var write func(each kafka.Message, attempts int)
	write = func(each kafka.Message, attempts int) {
		record := each.WriterData.(written)
		record.completed = func(err error) {
			if err != nil && attempts > 0 {
				// a Writer gives up at once where metadata has no leader, or where a connection was reset
				time.AfterFunc(lines.Poll, func() { write(each, attempts-1) })
			} else {
				record.done(err)
			}
		}
		each.WriterData = record
		if err := writer.WriteMessages(context.Background(), each); err != nil {
			record.completed(err)
		}
	}
	writer = kafka.Writer{
		Addr:         kafka.TCP(brokers(words[0])...),
		Topic:        words[1],
		RequiredAcks: kafka.RequireAll,
		MaxAttempts:  100,
		BatchTimeout: 5 * time.Millisecond,
		Async:        true,
		Balancer: kafka.BalancerFunc(func(each kafka.Message, _ ...int) int {
			return each.WriterData.(written).partition
		}),
		Completion: func(found []kafka.Message, err error) {
			for _, each := range found {
				each.WriterData.(written).completed(err)
			}
		},
		Transport: &kafka.Transport{MetadataTTL: time.Second},
	}
	lines.Paced(words[2], lines.Number[int32](words[3]), lines.Number[int](words[4]),
		func(partition int32, value string, done func(error)) {
			data := written{partition: int(partition), done: done}
			write(kafka.Message{Value: []byte(value), WriterData: data}, 300)
		})
	lines.Check(writer.Close())
}
