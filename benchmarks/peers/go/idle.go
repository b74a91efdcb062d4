package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// franzIdle measures the cost of clients that have read all records and are idle.
func franzIdle(task task) (found, error) {
	threads, descriptors := entries("/proc/self/task"), entries("/proc/self/fd")
	watch := start()
	ready, failed := make(chan struct{}), make(chan error, task.clients)
	for range task.clients {
		client, err := franzWaiting(task)
		if err != nil {
			return nil, err
		}
		go func() {
			var records int64
			for told := false; ; {
				fetches := client.PollFetches(context.Background())
				if err := fetches.Err(); err != nil {
					failed <- err
					return
				}
				fetches.EachRecord(func(*kgo.Record) { records++ })
				if !told && records >= task.records {
					told = true
					ready <- struct{}{}
				}
			}
		}()
	}
	for range task.clients {
		select {
		case <-ready:
		case err := <-failed:
			return nil, err
		}
	}
	time.Sleep(time.Duration(task.settle * float64(time.Second)))
	result := found{
		"ready_ms": milliseconds(watch.begin), "ready_cpu_ms": 1000 * (cpuSeconds() - watch.cpu),
	}
	from, cpu := time.Now(), cpuSeconds()
	time.Sleep(time.Duration(task.idle * float64(time.Second)))
	until := time.Now()
	result["idle_cpu_ms"] = 1000 * (cpuSeconds() - cpu) / until.Sub(from).Seconds()
	result["idle_from"], result["idle_until"] = epoch(from), epoch(until)
	result["threads"] = entries("/proc/self/task") - threads
	result["descriptors"] = entries("/proc/self/fd") - descriptors
	result["rss_ready"] = status("VmRSS") - watch.rss
	return result, nil
}

// franzWaiting creates a client with all partitions, or the member of a group with a pattern.
func franzWaiting(task task) (*kgo.Client, error) {
	// franz-go's default is five seconds; the other libraries wait half a second.
	wait := kgo.FetchMaxWait(500 * time.Millisecond)
	if task.pattern == "" {
		return franzReader(task, wait)
	}
	return kgo.NewClient(franzAccess(
		task, wait, kgo.ConsumerGroup(fmt.Sprintf("g-%d", os.Getpid())), kgo.ConsumeRegex(),
		kgo.ConsumeTopics(task.pattern), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)...)
}

// entries counts the entries of a folder of /proc: threads, file descriptors.
func entries(folder string) int {
	found, _ := os.ReadDir(folder)
	return len(found)
}

func epoch(at time.Time) float64 {
	return float64(at.UnixMicro()) / 1e6
}
