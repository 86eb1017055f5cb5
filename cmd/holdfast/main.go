// Command holdfast charges asynchronous AI work exactly once: the server, the demo and the operator's tools in one binary.
//
// It is the only place that knows every package and wires them together; it decides nothing about money.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	_ "time/tzdata" // texts are in the person's time zone, also where the machine has no time zone files

	"github.com/alecthomas/kong"
)

// cli is the grammar of the command line. Flags win over the environment.
type cli struct {
	Serve    serveCommand    `cmd:"" help:"Serve the HTTP API."`
	Bot      botCommand      `cmd:"" help:"Run Telegram bots that sell: commands, payments, and features that a model does."`
	Demo     demoCommand     `cmd:"" help:"Show one charge for two presses, a worker that dies, and what the database believes."`
	Drill    drillCommand    `cmd:"" help:"Run the acceptance scenarios on your own database, in a scratch project."`
	Bench    benchCommand    `cmd:"" help:"Measure the engine on your own database server, in a scratch database, beside simpler ways to do the same."`
	Verify   verifyCommand   `cmd:"" help:"Prove that the ledger adds up. Exit 1 on any difference."`
	Doctor   doctorCommand   `cmd:"" help:"Look for what needs doing: locks, replicas, clocks, queues, events, accounts. Exit 1 where something does."`
	Migrate  migrateCommand  `cmd:"" help:"Bring the database to this program's schema. Serving does it too."`
	Catalog  catalogCommand  `cmd:"" help:"Work on catalog files."`
	Account  accountCommand  `cmd:"" help:"Look at an account, or grant it something."`
	Key      keyCommand      `cmd:"" help:"Make API keys."`
	Endpoint endpointCommand `cmd:"" help:"Have events posted to addresses: webhooks."`
	Event    eventCommand    `cmd:"" help:"Read events."`
	Version  versionCommand  `cmd:"" help:"Print the version."`

	Reconcile reconcileCommand `cmd:"" help:"Compare what others say was paid or used with what is here."`

	FakeTelegram fakeTelegramCommand `cmd:"" help:"Serve a stand-in for Telegram's Bot API, to try bots without Telegram."`

	DemoWorker demoWorkerCommand `cmd:"" hidden:"" help:"Work for the demo until killed."`
	DemoBot    demoBotCommand    `cmd:"" hidden:"" help:"Be the bot of the demo until killed."`
}

// terminal is where commands write: results on out, everything else on notes.
type terminal struct {
	out, notes io.Writer
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], &terminal{out: os.Stdout, notes: os.Stderr}))
}

// errDifferent ends a command with exit 1 after it has said everything itself.
var errDifferent = errors.New("not as it should be")

// run is main without the process: it returns the exit code. 0: done; 1: failed, or a check found something; 2: the command line is wrong.
func run(ctx context.Context, args []string, t *terminal) int {
	code := -1
	parser, err := kong.New(&cli{}, kong.Name("holdfast"),
		kong.Description("Holdfast charges asynchronous AI work exactly once."),
		kong.Writers(t.out, t.notes), kong.Exit(func(c int) { code = c }), kong.UsageOnError(),
		kong.BindTo(ctx, (*context.Context)(nil)), kong.Bind(t))
	if err != nil {
		_, _ = fmt.Fprintln(t.notes, "holdfast:", err)
		return 1
	}
	parsed, err := parser.Parse(args)
	if code >= 0 { // help was printed
		return code
	}
	if err != nil {
		_, _ = fmt.Fprintln(t.notes, "holdfast:", err)
		_, _ = fmt.Fprintln(t.notes, "Run holdfast --help, or holdfast COMMAND --help.")
		return 2
	}
	err = parsed.Run()
	switch {
	case err == nil:
		return 0
	case !errors.Is(err, errDifferent):
		_, _ = fmt.Fprintln(t.notes, "holdfast:", err)
	}
	return 1
}

type versionCommand struct{}

func (versionCommand) Run(t *terminal) error {
	_, err := fmt.Fprintln(t.out, "holdfast", version())
	return err
}

// version is the module's version as the Go tool stamped it.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
