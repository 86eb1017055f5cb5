package browser

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// A test that waits for what will not come is ended: as a whole, and while it waits for one condition. Both are far above
// what any of them takes.
const (
	patience          = 3 * time.Minute
	conditionPatience = time.Minute
)

// New starts a browser for the test, with a profile that nobody has used and one empty page, and ends it with the test.
// The context is chromedp's: its actions run in that page. With -short the test is skipped.
func New(t testing.TB) context.Context {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a browser: run it without -short")
	}
	program, err := find()
	if err != nil {
		t.Fatal(err)
	}
	// Among the defaults are: headless, no sandbox when root, no updates, a profile in a directory that is made and removed.
	// What does not belong to a profile would go to the home of whoever runs the tests.
	home := t.TempDir()
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
		chromedp.ExecPath(program),
		chromedp.Flag("disable-gpu", true),
		chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true),
		chromedp.Env("XDG_CONFIG_HOME="+home, "XDG_CACHE_HOME="+home),
	)
	limited, cancel := context.WithTimeout(context.Background(), patience)
	allocator, end := chromedp.NewExecAllocator(limited, options...)
	ctx, _ := chromedp.NewContext(allocator) // ended with the allocator, which waits for it
	t.Cleanup(func() {
		// Asked to close, a browser takes its own processes along; end kills what does not listen, and removes the profile.
		closing, cancelClosing := context.WithTimeout(ctx, 20*time.Second)
		err := chromedp.Cancel(closing)
		cancelClosing()
		end()
		cancel()
		if err != nil {
			t.Errorf("end the browser: %v", err)
		}
	})
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("start %s: %v", program, err)
	}
	return ctx
}

// Until waits, inside the page, for a condition: an expression that the page's own script could contain.
func Until(ctx context.Context, t testing.TB, condition string) {
	t.Helper()
	// chromedp.Poll asks in a context that a navigation may have replaced; this asks in the one that is there.
	const look = `new Promise((resolve) => { const look = () => { if (%s) resolve(true); else setTimeout(look, 10); }; look(); })`
	limited, cancel := context.WithTimeout(ctx, conditionPatience)
	defer cancel()
	if _, err := chromedp.Run(limited, chromedp.Evaluate[bool](fmt.Sprintf(look, condition), chromedp.EvalAwaitPromise)); err != nil {
		t.Fatalf("wait until %s: %v", condition, err)
	}
}

// Notes are what Watch has seen so far. Its methods may be called at any time.
type Notes struct {
	mutex    sync.Mutex
	requests []string
	faults   []string
}

// Watch notes what the page of a context of New asks for and what goes wrong in it, from now on.
func Watch(ctx context.Context, t testing.TB) *Notes {
	t.Helper()
	n := &Notes{}
	if err := chromedp.Listen(ctx, n.note); err != nil {
		t.Fatal(err)
	}
	return n
}

// Requests are the URLs that were asked for, in order, those included that a policy then forbade.
func (n *Notes) Requests() []string {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	return slices.Clone(n.requests)
}

// Faults are the errors and warnings of the console: what scripts write there, exceptions that nobody caught, answers that
// are no success, and whatever the page's security policy forbade.
func (n *Notes) Faults() []string {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	return slices.Clone(n.faults)
}

func (n *Notes) note(event any) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	switch event := event.(type) {
	case *network.EventRequestWillBeSent:
		n.requests = append(n.requests, event.Request.URL)
	case *log.EventEntryAdded:
		if event.Entry.Level == log.EntryLevelError || event.Entry.Level == log.EntryLevelWarning {
			n.faults = append(n.faults, string(event.Entry.Source)+": "+event.Entry.Text+" "+event.Entry.URL)
		}
	case *runtime.EventExceptionThrown:
		text := event.ExceptionDetails.Text
		if thrown := event.ExceptionDetails.Exception; thrown != nil {
			text += " " + thrown.Description
		}
		n.faults = append(n.faults, "exception: "+text)
	case *runtime.EventConsoleAPICalled:
		switch event.Type {
		case runtime.ConsoleAPICalledTypeError, runtime.ConsoleAPICalledTypeWarning, runtime.ConsoleAPICalledTypeAssert:
			text := "console." + string(event.Type) + ":"
			for _, argument := range event.Args {
				text += " " + string(argument.Value) + argument.Description
			}
			n.faults = append(n.faults, text)
		}
	}
}
