// Driver of the scorecard for the Go clients: one process, one client of one library.
//
// In: `driver LIBRARY MODE --bootstrap … --topic …`, and the line `go` on standard input. Out: JSON
// lines on standard output (see the harness for what they mean). Exits at the end of standard
// input, at SIGTERM or after --seconds, with status 0 and without closing anything.
// Must not: set anything in a client that the mode doesn't need; each setting has its reason beside it.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	recordEvery    = 100 * time.Millisecond
	remakeAfter    = time.Second // as a supervisor would restart the process
	warmUpTimeout  = 30 * time.Second
	callersTimeout = 60 * time.Second
)

// Options of the command line.
type task struct {
	mode       string
	bootstrap  []string
	topic      string
	partitions int
	callers    int
	timeout    time.Duration
	refreshes  int
}

// A client of one library, established or not.
type client interface {
	// send sends a record and calls told once, with nil if the record is acknowledged.
	send(topic string, partition int32, value string, told func(error))
	// refresh makes the client request metadata now and waits for the response.
	refresh(topic string) error
	// partitions requests a topic's partitions, within the timeout if the library supports one.
	partitions(topic string, timeout time.Duration) error
}

var libraries = map[string]struct {
	module string
	open   func(task) (client, error)
}{
	"franz-go": {"github.com/twmb/franz-go", openFranz},
	"sarama":   {"github.com/IBM/sarama", openSarama},
}

func main() {
	if len(os.Args) < 3 {
		fail("usage: driver franz-go|sarama produce|idle|metadata|callers|call --bootstrap HOST:PORT --topic T")
	}
	library, known := libraries[os.Args[1]]
	if !known {
		fail("unknown library " + os.Args[1])
	}
	task, seconds := parse(os.Args[2], os.Args[3:])
	say("ready", "library", os.Args[1], "version", version(library.module))
	leaveAfter(seconds)
	orders := bufio.NewScanner(os.Stdin)
	if task.mode == "produce" || task.mode == "idle" {
		go leaveAtTheEnd(orders)
	}
	client := untilMade(func() (client, error) { return library.open(task) })
	switch task.mode {
	case "produce", "idle":
		produce(client, task)
	case "metadata":
		established(client, task, orders)
		refresh(client, task)
	case "callers":
		established(client, task, orders)
		allAtOnce(client, task)
	case "call":
		established(client, task, orders)
		start := time.Now()
		err := client.partitions(task.topic+"-0", task.timeout)
		say("returned", "seconds", time.Since(start).Seconds(), "what", describe(err))
		leave()
	default:
		fail("unknown mode " + task.mode)
	}
	select {} // connections stay open until the harness ends this process
}

func parse(mode string, arguments []string) (task, time.Duration) {
	flags := flag.NewFlagSet("driver", flag.ExitOnError)
	bootstrap := flags.String("bootstrap", "", "addresses, separated by commas")
	topic := flags.String("topic", "", "topic")
	partitions := flags.Int("partitions", 1, "partitions of the topic")
	seconds := flags.Float64("seconds", 600, "leave after so long")
	callers := flags.Int("callers", 1000, "mode callers: how many")
	timeout := flags.Float64("timeout", 5, "mode call: the bound of the call in seconds")
	refreshes := flags.Int("refreshes", 100, "mode metadata: how many")
	_ = flags.Parse(arguments) // exits by itself when it can't
	if *bootstrap == "" || *topic == "" {
		fail("--bootstrap and --topic are needed")
	}
	return task{
		mode, strings.Split(*bootstrap, ","), *topic, *partitions, *callers, asDuration(*timeout), *refreshes,
	}, asDuration(*seconds)
}

func asDuration(seconds float64) time.Duration {
	return time.Duration(seconds * float64(time.Second))
}

// version returns the version of a module with which this program was linked.
func version(module string) string {
	build, _ := debug.ReadBuildInfo()
	for _, dependency := range build.Deps {
		if dependency.Path == module {
			return strings.TrimPrefix(dependency.Version, "v")
		}
	}
	return "unknown"
}

// untilMade calls `open` until it works, once a second.
func untilMade(open func() (client, error)) client {
	for {
		client, err := open()
		if err == nil {
			return client
		}
		failed(err)
		time.Sleep(remakeAfter)
	}
}

// produce sends a record every 100 ms. Ticks that a blocking send misses are left out.
func produce(client client, task task) {
	ticker := time.NewTicker(recordEvery)
	for n := 0; ; n++ {
		client.send(task.topic, 0, fmt.Sprint(n), func(err error) {
			if err != nil {
				failed(err)
			} else {
				say("acked", "n", n)
			}
		})
		<-ticker.C
	}
}

// established writes a record to each partition, reports it, and waits for the line `go`.
func established(client client, task task, orders *bufio.Scanner) {
	deadline := time.Now().Add(warmUpTimeout)
	for partition := range task.partitions {
		for {
			told := make(chan error, 1)
			client.send(task.topic, int32(partition), "0", func(err error) { told <- err })
			err := errors.New("the client could not be established")
			select {
			case err = <-told:
			case <-time.After(time.Until(deadline)):
			}
			if err == nil {
				break
			}
			failed(err)
			if time.Now().After(deadline) {
				fail(err.Error())
			}
			time.Sleep(remakeAfter)
		}
		say("acked", "n", partition)
	}
	say("waiting")
	if !orders.Scan() {
		leave()
	}
	go leaveAtTheEnd(orders)
}

func refresh(client client, task task) {
	done := 0
	for range task.refreshes {
		if err := client.refresh(task.topic); err != nil {
			failed(err)
		} else {
			done++
		}
	}
	say("done", "n", done)
}

// allAtOnce requests each topic in a goroutine of its own, all at the same instant.
func allAtOnce(client client, task task) {
	var ready, over sync.WaitGroup
	var answered atomic.Int64
	start := make(chan struct{})
	ready.Add(task.callers)
	over.Add(task.callers)
	for i := range task.callers {
		go func() {
			defer over.Done()
			topic := fmt.Sprintf("%s-%d", task.topic, i)
			ready.Done()
			<-start
			if err := client.partitions(topic, callersTimeout); err != nil {
				failed(err)
			} else {
				answered.Add(1)
			}
		}()
	}
	ready.Wait()
	begin := time.Now()
	close(start)
	over.Wait()
	say("done", "n", answered.Load(), "seconds", time.Since(begin).Seconds())
}

func leaveAfter(limit time.Duration) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() { <-signals; leave() }()
	time.AfterFunc(limit, leave)
}

func leaveAtTheEnd(orders *bufio.Scanner) {
	for orders.Scan() {
	}
	leave()
}

func leave() {
	os.Exit(0)
}

func fail(text string) {
	fmt.Fprintln(os.Stderr, text)
	os.Exit(2)
}
