package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// demoBotCommand is the bot of the demo's page: the real one, in a process of its own, so that it can be killed. Standard
// input says how far its clock is ahead of the machine's, a duration a line; it ends with its input.
type demoBotCommand struct {
	DB       string        `arg:"" name:"db" help:"The database."`
	API      string        `arg:"" help:"Where the Bot API is."`
	Provider string        `arg:"" help:"Where the model provider is."`
	Ahead    time.Duration `arg:"" help:"How far its clock is ahead."`
}

const (
	demoToken    = "7000001:no-secret" // of a stand-in that nobody else can reach
	demoOperator = 1                   // the user who may refund

	// demoLease is short, so that nobody waits long for the jobs of a killed process.
	demoLease = 6 * time.Second
)

func (c demoBotCommand) Run(ctx context.Context, t *terminal) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var ahead atomic.Int64
	ahead.Store(int64(c.Ahead))
	go func() {
		defer stop()
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			length, err := time.ParseDuration(lines.Text())
			if err != nil {
				return
			}
			ahead.Store(int64(length))
			if _, err := fmt.Fprintln(t.out, "ahead", length); err != nil {
				return
			}
		}
	}()
	return botCommand{
		databaseFlags: databaseFlags{DB: c.DB}, Project: devProject, Admin: []int64{demoOperator}, Support: "@shop_help",
		APIURL: c.API, ProviderURL: c.Provider, Remembers: true, TextModel: "rehearsed", ImageModel: "rehearsed", AtOnce: 4,
		Listen: "127.0.0.1:0", SweepEvery: demoSweepEvery, LogLevel: slog.LevelWarn, Lease: demoLease,
		Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) },
	}.Run(ctx, t)
}

// demoBot runs the bot's process and starts it again where it was killed.
type demoBot struct {
	database, api, provider string
	notes                   io.Writer

	mu      sync.Mutex
	process *os.Process // nil: none runs
	input   io.WriteCloser
	heard   chan struct{} // one for each line that says that the clock was moved
	working bool
	killed  bool
	starts  int
	ahead   time.Duration
}

// restartAfter is long enough to see that the process is gone.
const restartAfter = 2 * time.Second

// run keeps the bot running until ctx ends. ready is closed when it works for the first time. A bot that ends by itself ends
// run with an error.
func (b *demoBot) run(ctx context.Context, ready chan<- struct{}) error {
	for {
		if err := b.once(ctx, func() {
			if ready != nil {
				close(ready)
				ready = nil
			}
		}); err != nil {
			return err
		}
		timer := time.NewTimer(restartAfter)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
	}
}

// once starts the process and waits for its end, which is an error where nobody asked for it.
func (b *demoBot) once(ctx context.Context, working func()) error {
	out, heard, ended, err := b.start(ctx)
	if err != nil {
		return err
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		switch {
		case strings.HasPrefix(lines.Text(), "listening on "):
			b.mu.Lock()
			b.working = true
			b.mu.Unlock()
			working()
		case strings.HasPrefix(lines.Text(), "ahead "):
			heard <- struct{}{}
		}
	}
	err = ended()
	b.mu.Lock()
	defer b.mu.Unlock()
	close(heard)
	killed := b.killed
	b.process, b.working, b.killed = nil, false, false
	if killed || ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("the demo's bot ended: %w", errors.Join(err, errors.New("--verbose shows why")))
}

func (b *demoBot) start(ctx context.Context) (out io.Reader, heard chan<- struct{}, ended func() error, err error) {
	program, err := os.Executable()
	if err != nil {
		return nil, nil, nil, fmt.Errorf("find this program, to run the bot: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	// Its database is thrown away: it need not end well.
	command := exec.CommandContext(ctx, program, "demo-bot", b.database, b.api, b.provider, b.ahead.String())
	command.Env = append(os.Environ(), tokenVariable+"="+demoToken, "HOLDFAST_PROVIDER_KEY=")
	command.Stderr = b.notes
	input, err := command.StdinPipe()
	if err != nil {
		return nil, nil, nil, err
	}
	out, err = command.StdoutPipe()
	if err != nil {
		return nil, nil, nil, err
	}
	if err := command.Start(); err != nil {
		return nil, nil, nil, fmt.Errorf("start the bot: %w", err)
	}
	b.process, b.input, b.heard = command.Process, input, make(chan struct{}, 1)
	b.starts++
	return out, b.heard, command.Wait, nil
}

// kill ends the process as a power cut would. It returns its number; 0: none ran.
func (b *demoBot) kill() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.process == nil || b.killed {
		return 0
	}
	b.killed, b.working = true, false
	_ = b.process.Kill()
	return b.process.Pid
}

// advance moves the bot's clock, also that of one which is about to start, and returns when it has heard of it.
func (b *demoBot) advance(length time.Duration) {
	b.mu.Lock()
	b.ahead += length
	ahead, input, heard, working := b.ahead, b.input, b.heard, b.working
	b.mu.Unlock()
	if !working {
		return
	}
	if _, err := fmt.Fprintln(input, ahead); err == nil {
		<-heard // or it has ended
	}
}

// demoProcess is what the page shows of the process.
type demoProcess struct {
	State  string `json:"state"` // works, starts or killed
	PID    int    `json:"pid"`   // 0: none runs
	Starts int    `json:"starts"`
}

func (b *demoBot) look() demoProcess {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := demoProcess{State: "starts", Starts: b.starts}
	switch {
	case b.process == nil || b.killed:
		p.State = "killed"
	case b.working:
		p.State, p.PID = "works", b.process.Pid
	default:
		p.PID = b.process.Pid
	}
	return p
}

func (b *demoBot) now() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return time.Now().Add(b.ahead).UTC()
}
