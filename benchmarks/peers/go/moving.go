package main

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// The longest time that a broker holds a fetch. franz-go's default is five seconds; the other
// libraries wait half a second.
const held = 500 * time.Millisecond

// franzSeek measures calls of a consumer whose fetch the broker holds: peers/python/moving.py. kgo
// has no call for end offsets.
func franzSeek(task task) (found, error) {
	client, err := franzReader(task, kgo.FetchMaxWait(held))
	if err != nil {
		return nil, err
	}
	var pauses []time.Duration
	for _, word := range strings.Split(task.pauses, ",") {
		number, err := strconv.Atoi(word)
		if err != nil {
			return nil, err
		}
		pauses = append(pauses, time.Duration(number)*time.Millisecond)
	}
	// poll waits at most this time and returns the number of records.
	poll := func(timeout time.Duration) (int, error) {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return 0, err
		}
		return fetches.NumRecords(), nil
	}
	// rest polls for this time and expects no record.
	rest := func(pause time.Duration) error {
		for until := time.Now().Add(pause); time.Now().Before(until); {
			n, err := poll(min(50*time.Millisecond, time.Until(until)))
			if n > 0 {
				return fmt.Errorf("there was a record that hadn't been asked for")
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	// record measures the time from a call until the record arrives.
	record := func(call func()) (time.Duration, error) {
		begin := time.Now()
		call()
		n, err := poll(2 * time.Minute)
		if err == nil && n == 0 {
			err = fmt.Errorf("no record within two minutes")
		}
		return time.Since(begin), err
	}
	for left := int(task.records); left > 0; {
		n, err := poll(2 * time.Minute)
		if err != nil {
			return nil, err
		}
		left -= n
	}
	first := map[string][]int32{task.topic: {0}}
	seek := func() {
		client.SetOffsets(map[string]map[int32]kgo.EpochOffset{task.topic: {0: {Epoch: -1, Offset: 0}}})
	}
	var seeks, resumes []time.Duration
	for _, pause := range pauses {
		if err := rest(pause); err != nil {
			return nil, err
		}
		took, err := record(seek)
		if err != nil {
			return nil, err
		}
		seeks = append(seeks, took)
	}
	for _, pause := range pauses {
		client.PauseFetchPartitions(first)
		seek()
		if err := rest(held + pause); err != nil {
			return nil, err
		}
		took, err := record(func() { client.ResumeFetchPartitions(first) })
		if err != nil {
			return nil, err
		}
		resumes = append(resumes, took)
	}
	return found{"seek_ms": median(seeks), "resume_ms": median(resumes)}, nil
}

// median returns the median of an odd number of times, in milliseconds.
func median(times []time.Duration) float64 {
	sort.Slice(times, func(i, j int) bool { return times[i] < times[j] })
	return float64(times[len(times)/2].Microseconds()) / 1000
}
