package main

import (
	"encoding/json"
	"os"
	"sync"
	"time"
)

const errorsPerSecond = 5

// The JSON lines for the harness. Each is one write, so that the harness gets it immediately.
var (
	lines    sync.Mutex
	encoder  = json.NewEncoder(os.Stdout)
	second   int64 // the one that `inSecond` counts for
	inSecond int
)

// say writes one line: the event, the time, and pairs of names and values.
func say(event string, pairs ...any) {
	line := map[string]any{"event": event, "at": float64(time.Now().UnixMicro()) / 1e6}
	for i := 0; i < len(pairs); i += 2 {
		line[pairs[i].(string)] = pairs[i+1]
	}
	lines.Lock()
	defer lines.Unlock()
	_ = encoder.Encode(line) // the end of the harness closes standard input, which ends this process
}

// failed reports an error; frequent errors are thinned out.
func failed(err error) {
	lines.Lock()
	if now := time.Now().Unix(); now != second {
		second, inSecond = now, 0
	}
	inSecond++
	shown := inSecond <= errorsPerSecond
	lines.Unlock()
	if shown {
		say("error", "what", describe(err))
	}
}

func describe(err error) string {
	if err == nil {
		return "ok"
	}
	return err.Error()
}
