// franz-go as a member of a group, a copier, a transactional producer, a writer, and a client that is led.
package main

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

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
		writer(words)
	case "client":
		client(words)
	}
}

func within() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), lines.Step)
}

func connected(bootstrap string, more ...kgo.Opt) *kgo.Client {
	made, err := kgo.NewClient(append(quick(bootstrap), more...)...)
	lines.Check(err)
	return made
}

func quick(bootstrap string) []kgo.Opt {
	return []kgo.Opt{
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.MetadataMaxAge(time.Second),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	}
}

func joining(topic, group, assignor string, share *lines.Share) []kgo.Opt {
	has := func(_ context.Context, _ *kgo.Client, found map[string][]int32) { share.Gains(all(found)) }
	gave := func(_ context.Context, _ *kgo.Client, found map[string][]int32) { share.Loses(all(found)) }
	options := []kgo.Opt{
		kgo.ConsumerGroup(group),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(has),
		kgo.OnPartitionsRevoked(gave),
		kgo.OnPartitionsLost(gave),
		kgo.HeartbeatInterval(lines.Heartbeat),
	}
	if strings.HasPrefix(topic, "^") {
		options = append(options, kgo.ConsumeRegex())
	}
	options = append(options, kgo.ConsumeTopics(topic))
	switch assignor {
	case "consumer":
		return append(options, kgo.ServerSideBalancer(), kgo.Balancers(kgo.RangeBalancer()))
	case "cooperative-sticky":
		return append(options, kgo.SessionTimeout(lines.Session), kgo.Balancers(kgo.CooperativeStickyBalancer()))
	default:
		return append(options, kgo.SessionTimeout(lines.Session), kgo.Balancers(kgo.RoundRobinBalancer()))
	}
}

func all(found map[string][]int32) []int32 {
	var partitions []int32
	for _, each := range found {
		partitions = append(partitions, each...)
	}
	return partitions
}

// member BOOTSTRAP TOPIC GROUP ASSIGNOR [INSTANCE]
func member(words []string) {
	ended := lines.Ended()
	options := joining(words[1], words[2], words[3], &lines.Share{})
	if len(words) > 4 {
		options = append(options, kgo.InstanceID(words[4]), kgo.SessionTimeout(lines.StaticSession))
	}
	consumer := connected(words[0], options...)
	for {
		select {
		case <-ended:
			consumer.Close()
			return
		default:
		}
		ctx, cancel := context.WithTimeout(context.Background(), lines.Poll)
		found := consumer.PollFetches(ctx)
		cancel()
		found.EachRecord(func(each *kgo.Record) { lines.Tell("read", string(each.Value)) })
		if !found.Empty() {
			ctx, cancel := within()
			_ = consumer.CommitUncommittedOffsets(ctx) // else the next owner reads it again
			cancel()
		}
	}
}

// copier MODE BOOTSTRAP TOPIC GROUP ASSIGNOR
func copier(words []string) {
	ended := lines.Ended()
	mode, topic, group := words[0], words[2], words[3]
	options := append(quick(words[1]), joining(topic, group, words[4], &lines.Share{})...)
	options = append(options,
		kgo.TransactionalID("copier-"+group+"-"+time.Now().String()),
		kgo.TransactionTimeout(5*time.Second),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
	)
	session, err := kgo.NewGroupTransactSession(options...)
	lines.Check(err)
	for {
		select {
		case <-ended:
			session.Close()
			return
		default:
		}
		ctx, cancel := context.WithTimeout(context.Background(), lines.Poll)
		found := session.PollFetches(ctx)
		cancel()
		if found.NumRecords() > 0 {
			copyAll(session, mode, group, found)
		}
	}
}

func copyAll(session *kgo.GroupTransactSession, mode, target string, found kgo.Fetches) {
	lines.Check(session.Begin())
	var failed error
	found.EachRecord(func(each *kgo.Record) {
		session.Produce(context.Background(), &kgo.Record{Topic: target, Partition: each.Partition, Value: each.Value},
			func(_ *kgo.Record, err error) {
				if err != nil {
					failed = err
				}
			})
	})
	ctx, cancel := within()
	defer cancel()
	lines.Check(session.Client().Flush(ctx))
	if mode == "holds" {
		lines.Tell("holds")
		select {}
	}
	committed, err := session.End(ctx, failed == nil)
	if !committed || err != nil {
		lines.Tell("undone", failed, err)
		return
	}
	found.EachRecord(func(each *kgo.Record) { lines.Tell("read", string(each.Value)) })
}

// writer BOOTSTRAP TOPIC NAME PARTITIONS RATE
func writer(words []string) {
	producer := connected(words[0], kgo.ProducerLinger(0))
	lines.Paced(words[2], lines.Number[int32](words[3]), lines.Number[int](words[4]),
		func(partition int32, value string, done func(error)) {
			record := &kgo.Record{Topic: words[1], Partition: partition, Value: []byte(value)}
			producer.Produce(context.Background(), record, func(_ *kgo.Record, err error) { done(err) })
		})
	producer.Close()
}

// transactor BOOTSTRAP ID TIMEOUT_MS
func transactor(words []string) {
	producer := connected(words[0],
		kgo.TransactionalID(words[1]),
		kgo.TransactionTimeout(time.Duration(lines.Number[int64](words[2]))*time.Millisecond),
	)
	do := func(what func(ctx context.Context) error) func([]string) (string, error) {
		return func([]string) (string, error) {
			ctx, cancel := within()
			defer cancel()
			return "", what(ctx)
		}
	}
	end := func(how kgo.TransactionEndTry) func([]string) (string, error) {
		return do(func(ctx context.Context) error { return producer.EndTransaction(ctx, how) })
	}
	lines.Steps{
		"init": do(func(ctx context.Context) error {
			_, _, err := producer.ProducerID(ctx)
			return err
		}),
		"begin": do(func(context.Context) error { return producer.BeginTransaction() }),
		"send": func(words []string) (string, error) {
			ctx, cancel := within()
			defer cancel()
			record := &kgo.Record{Topic: words[0], Partition: lines.Number[int32](words[1]), Value: []byte(words[2])}
			return "", producer.ProduceSync(ctx, record).FirstErr()
		},
		"flush":  do(producer.Flush),
		"commit": end(kgo.TryCommit),
		"abort":  end(kgo.TryAbort),
	}.Lead()
}
