// Package lines has the lines by which a program tells what it saw, and is led: those of tests/clients/member.py and
// tests/interop/transactor.py.
package lines

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Settings of every member, as those of tests/clients/member.py.
const (
	Session       = 6 * time.Second
	StaticSession = 20 * time.Second
	Heartbeat     = 500 * time.Millisecond
	Poll          = 100 * time.Millisecond
	// Step bounds what one line asks for.
	Step = 60 * time.Second
)

var printing sync.Mutex

// Tell prints one line.
func Tell(words ...any) {
	printing.Lock()
	defer printing.Unlock()
	os.Stdout.WriteString(strings.Join(strings.Fields(fmt.Sprintln(words...)), " ") + "\n")
}

// Check ends the program if something failed that it cannot go on without.
func Check(err error) {
	if err != nil {
		Tell("failed", err)
		os.Exit(1)
	}
}

// Ended returns a channel that is closed once the input ends.
func Ended() <-chan struct{} {
	ended := make(chan struct{})
	go func() {
		io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	return ended
}

// Share holds the partitions of a member, and tells when they change.
type Share struct {
	lock  sync.Mutex
	owned map[int32]bool
}

// Gains tells which partitions there are with these.
func (s *Share) Gains(partitions []int32) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.owned == nil {
		s.owned = map[int32]bool{}
	}
	for _, each := range partitions {
		s.owned[each] = true
	}
	s.tell("has", s.all())
}

// Loses tells which partitions were taken away.
func (s *Share) Loses(partitions []int32) {
	s.lock.Lock()
	defer s.lock.Unlock()
	for _, each := range partitions {
		delete(s.owned, each)
	}
	s.tell("gave", slices.Sorted(slices.Values(partitions)))
	s.tell("has", s.all())
}

func (s *Share) all() []int32 {
	var found []int32
	for each := range s.owned {
		found = append(found, each)
	}
	slices.Sort(found)
	return found
}

func (s *Share) tell(word string, partitions []int32) {
	words := []any{word}
	for _, each := range partitions {
		words = append(words, each)
	}
	Tell(words...)
}

// Steps are what the lines of the input may ask for; each returns the words that follow `done`.
type Steps map[string]func(words []string) (string, error)

// Lead takes the step of each line, and answers `done` or `failed` and why, until the input ends.
func (s Steps) Lead() {
	Tell("done")
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		words := strings.Fields(input.Text())
		step, known := s[words[0]]
		if !known {
			Tell("failed", "there is no step", words[0])
			continue
		}
		if answer, err := step(words[1:]); err != nil {
			Tell("failed", err)
		} else {
			Tell("done", answer)
		}
	}
}

// Number reads a word that is a whole number.
func Number[T int | int16 | int32 | int64](word string) T {
	found, err := strconv.ParseInt(word, 10, 64)
	Check(err)
	return T(found)
}

// Pairs reads words like name=value.
func Pairs(words []string) map[string]*string {
	found := map[string]*string{}
	for _, each := range words {
		name, value, _ := strings.Cut(each, "=")
		found[name] = &value
	}
	return found
}

// Record shows a record that was read: OFFSET:KEY=VALUE.
func Record(offset int64, key, value []byte) string {
	return fmt.Sprintf("%d:%s=%s", offset, key, value)
}

// Paced writes until the input ends: NAME-0 to partition 0, NAME-1 to the next, at most `rate` in a second. It tells
// `wrote VALUE` for each that is acknowledged, and ends once all are.
func Paced(name string, partitions int32, rate int, write func(partition int32, value string, done func(error))) {
	ended, pending := Ended(), sync.WaitGroup{}
	ticks := time.NewTicker(time.Second / time.Duration(rate))
	for number := 0; ; number++ {
		select {
		case <-ended:
			pending.Wait()
			return
		case <-ticks.C:
		}
		value := fmt.Sprintf("%s-%d", name, number)
		pending.Add(1)
		write(int32(number)%partitions, value, func(err error) {
			defer pending.Done()
			if err != nil {
				Tell("lost", value, err)
			} else {
				Tell("wrote", value)
			}
		})
	}
}
