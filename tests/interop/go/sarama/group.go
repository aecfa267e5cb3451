package main

import (
	"context"
	"fmt"
	"time"

	"github.com/IBM/sarama"

	"raftlog/interop/lines"
)

// member BOOTSTRAP TOPIC GROUP ASSIGNOR [INSTANCE]
func member(words []string) {
	consume(joining(words), words[1], &reader{topic: words[1]})
}

// consume takes part in generation after generation, until the input ends.
func consume(group sarama.ConsumerGroup, topic string, handler sarama.ConsumerGroupHandler) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-lines.Ended()
		cancel()
	}()
	for ctx.Err() == nil {
		if err := group.Consume(ctx, []string{topic}, handler); err != nil {
			lines.Tell("undone", err)
			time.Sleep(lines.Poll)
		}
	}
	lines.Check(group.Close())
}

type reader struct {
	topic string
	share lines.Share
}

func (r *reader) Setup(session sarama.ConsumerGroupSession) error {
	r.share.Gains(session.Claims()[r.topic])
	return nil
}

func (r *reader) Cleanup(session sarama.ConsumerGroupSession) error {
	r.share.Loses(session.Claims()[r.topic])
	return nil
}

func (r *reader) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case each, open := <-claim.Messages():
			if !open {
				return nil
			}
			lines.Tell("read", string(each.Value))
			session.MarkMessage(each, "")
			if len(claim.Messages()) == 0 {
				session.Commit()
			}
		case <-session.Context().Done():
			return nil
		}
	}
}

type transformer struct {
	reader
	bootstrap, mode, target string
}

// copier MODE BOOTSTRAP TOPIC GROUP ASSIGNOR
func copier(words []string) {
	handler := transformer{reader{topic: words[2]}, words[1], words[0], words[3]}
	consume(joining(words[1:]), words[2], &handler)
}

// ConsumeClaim copies with an id for each partition, which fences the former owner's producer.
func (t *transformer) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	id := fmt.Sprintf("%s-%d", t.target, claim.Partition())
	producer, err := sarama.NewSyncProducer(brokers(t.bootstrap), transactional(id, 5*time.Second))
	if err != nil {
		return err
	}
	defer producer.Close()
	for {
		select {
		case each, open := <-claim.Messages():
			if !open {
				return nil
			}
			found := []*sarama.ConsumerMessage{each}
			for len(found) < 100 && len(claim.Messages()) > 0 {
				found = append(found, <-claim.Messages())
			}
			if err := t.copyAll(producer, found); err != nil {
				lines.Tell("undone", err)
				return err // the next generation begins at what is committed
			}
			session.MarkMessage(found[len(found)-1], "")
		case <-session.Context().Done():
			return nil
		}
	}
}

func (t *transformer) copyAll(producer sarama.SyncProducer, found []*sarama.ConsumerMessage) error {
	if err := producer.BeginTxn(); err != nil {
		return err
	}
	var copies []*sarama.ProducerMessage
	for _, each := range found {
		copies = append(copies, message(t.target, each.Partition, string(each.Value)))
	}
	if err := producer.SendMessages(copies); err != nil {
		return err
	}
	if err := producer.AddMessageToTxn(found[len(found)-1], t.target, nil); err != nil {
		return err
	}
	if t.mode == "holds" {
		lines.Tell("holds")
		select {}
	}
	if err := producer.CommitTxn(); err != nil {
		return err
	}
	for _, each := range found {
		lines.Tell("read", string(each.Value))
	}
	return nil
}
