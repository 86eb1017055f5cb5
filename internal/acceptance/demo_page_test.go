package acceptance

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/holdfast-dev/holdfast/internal/browser"
)

var screenshots = flag.String("screenshots", "", "a folder for pictures of the demo's page, instead of one that is thrown away")

// demoPage is the page of a running demo, in a browser.
type demoPage struct {
	t   *testing.T
	ctx context.Context
	url string
}

// openDemo opens the page. Whatever a test then does with it: everything comes from the demo, nothing goes wrong in the
// console, and the page's own policy forbids nothing that it does.
func openDemo(t *testing.T) *demoPage {
	t.Helper()
	ctx := browser.New(t)
	s := start(t, "", nil, "demo", "--listen", "127.0.0.1:0")
	p := &demoPage{t: t, ctx: ctx, url: s.url}
	notes := browser.Watch(ctx, t)
	t.Cleanup(func() {
		p.ask("1", new(int)) // whatever was noted before this answer has arrived
		for _, url := range notes.Requests() {
			if !strings.HasPrefix(url, s.url+"/") {
				t.Errorf("it asks somebody else: %s", url)
			}
		}
		if !slices.Contains(notes.Requests(), s.url+"/state") {
			t.Errorf("only %v were noted, so nothing is known of the others", notes.Requests())
		}
		for _, fault := range notes.Faults() {
			t.Error(fault)
		}
	})
	p.size(1280)
	p.do(chromedp.Navigate(p.url + "/"))
	p.until(`document.querySelectorAll("#messages li").length === 2`) // /start and its answer
	return p
}

func (p *demoPage) do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	limited, cancel := context.WithTimeout(p.ctx, time.Minute)
	defer cancel()
	if err := chromedp.Do(limited, steps...); err != nil {
		p.t.Fatal(err)
	}
}

func (p *demoPage) ask(script string, into any) {
	p.t.Helper()
	text, err := chromedp.Run(p.ctx, chromedp.Evaluate[string]("JSON.stringify("+script+")"))
	if err == nil {
		err = json.Unmarshal([]byte(text), into)
	}
	if err != nil {
		p.t.Errorf("%s: %v", script, err)
	}
}

func (p *demoPage) until(condition string) {
	p.t.Helper()
	browser.Until(p.ctx, p.t, condition)
}

func (p *demoPage) click(selector string) {
	p.t.Helper()
	p.do(chromedp.Click(chromedp.CSS(selector)))
}

func (p *demoPage) size(width int64) {
	p.t.Helper()
	p.do(chromedp.EmulateViewport(width, 900))
}

// rows are the cells of a table, newest first.
func (p *demoPage) rows(id string) (rows [][]string) {
	p.t.Helper()
	p.ask(fmt.Sprintf(`[...document.querySelectorAll("#%s tr")].map((row) => [...row.cells].map((cell) => cell.innerText))`, id), &rows)
	return rows
}

const newestState = `document.querySelector("#reservations .state").innerText`

func TestTheDemosPageShowsOneChargeForEverythingThatGoesWrong(t *testing.T) {
	p := openDemo(t)
	say := func(what string, got, wanted any) {
		t.Helper()
		if fmt.Sprint(got) != fmt.Sprint(wanted) {
			t.Errorf("%s: %v, wanted %v", what, got, wanted)
		}
	}

	p.click("#words")
	p.do(chromedp.KeyEvent("make this gud"), chromedp.KeyEvent(kb.Enter))
	p.until(`document.querySelector("#reservations .state") && ` + newestState + ` === "running"`)
	say("grants while it runs", p.rows("grants")[0][1:5], []string{"3", "2", "1", "0"})
	p.until(newestState + ` === "committed"`)
	say("grants when it is done", p.rows("grants")[0][1:5], []string{"3", "2", "0", "1"})
	p.until(`[...document.querySelectorAll("#messages li:not(.mine) .reply")].some((e) => e.innerText === "make this gud")`)

	p.click(`[data-do="twice"]`)
	p.until(`document.getElementById("said").innerText.startsWith("Two presses")`)
	p.until(`document.querySelectorAll("#reservations tr").length === 2 && ` + newestState + ` === "committed"`)
	say("grants after two presses", p.rows("grants")[0][1:5], []string{"3", "1", "0", "2"})

	p.click(`[data-do="pay_twice"]`)
	p.until(`document.querySelectorAll("#grants tr").length === 2`)
	p.until(`[...document.querySelectorAll("#messages .bubble")].some((e) => e.innerText.startsWith("Thank you!"))`)
	say("the pocket that was bought", p.rows("grants")[0][1:5], []string{"100", "100", "0", "0"})

	p.click(`[data-do="kill"]`)
	p.until(`document.getElementById("process").dataset.state === "killed"`)
	p.until(`document.getElementById("said").innerText.includes("in the middle of the work")`)
	p.screenshot("demo.png")
	p.until(`document.getElementById("process").dataset.state === "works"`)
	p.until(`document.querySelectorAll("#reservations tr").length === 3 && ` + newestState + ` === "committed"`)
	say("the attempts of what was interrupted", p.rows("reservations")[0][5], "2")
	say("grants after it", p.rows("grants")[1][1:5], []string{"3", "0", "0", "3"})
	p.until(`document.getElementById("provider").innerText === "asked 4×, worked 3×"`)

	p.click(`[data-do="refund"]:not(:disabled)`)
	p.until(`document.querySelector("#entries tr").innerText.includes("revoke")`)
	say("what the refund took", p.rows("grants")[0][1:6], []string{"100", "0", "0", "0", "100"})

	p.click(`[data-do="day"]`)
	p.until(`document.getElementById("account").innerText.includes("3 credit available")`)

	// The bot's own buttons: plans, an invoice, and a payment.
	p.do(chromedp.Click(chromedp.CSS(`#hints [data-send="/plans"]`)))
	p.until(`[...document.querySelectorAll("#messages li:last-child button")].some((e) => e.innerText.startsWith("100 credits"))`)
	p.ask(`[...document.querySelectorAll("#messages li:last-child button")].find((e) => e.innerText.startsWith("100 credits")).click() || 1`, new(int))
	p.until(`document.querySelector("#messages li:last-child button")?.innerText === "Pay 100 Stars"`)
	p.click("#messages li:last-child button")
	p.until(`document.getElementById("said").innerText === "Paid: 100 Stars."`)
	p.until(`document.getElementById("account").innerText.includes("103 credit available")`)
}

func TestTheDemosPageIsUsedByKeyboardAlone(t *testing.T) {
	p := openDemo(t)
	var stops []string
	var at struct{ Name, Outline string }
	for range 30 {
		p.do(chromedp.KeyEvent(kb.Tab))
		p.ask(`{name: document.activeElement.dataset.do || document.activeElement.dataset.send || document.activeElement.id || document.activeElement.innerText.slice(0, 20), outline: getComputedStyle(document.activeElement).outlineStyle}`, &at)
		if at.Outline != "solid" {
			t.Errorf("the focus at %q cannot be seen: outline %q", at.Name, at.Outline)
		}
		stops = append(stops, at.Name)
		if at.Name == "day" {
			break
		}
	}
	for _, wanted := range []string{"messages", "/balance", "words", "Send", "twice", "kill", "pay_twice", "day"} {
		if !slices.Contains(stops, wanted) {
			t.Errorf("no stop at %q: %q", wanted, stops)
		}
	}
	p.do(chromedp.KeyEvent(kb.Enter))
	p.until(`document.getElementById("said").innerText.startsWith("A day has passed")`)
	p.ask(`{name: document.activeElement.dataset.do}`, &at)
	if at.Name != "day" {
		t.Errorf("the focus went to %q", at.Name)
	}
}

func TestTheDemosPageFitsAPhoneAndADesk(t *testing.T) {
	p := openDemo(t)
	p.click(`[data-do="pay_twice"]`)
	p.until(`document.querySelectorAll("#grants tr").length === 1`)
	for _, width := range []int64{360, 768, 1280} {
		p.size(width)
		var page struct{ Inner, Wide int64 }
		p.ask(`{inner: innerWidth, wide: document.documentElement.scrollWidth}`, &page)
		if page.Inner != width || page.Wide > width {
			t.Errorf("at %d pixels the page is %d wide", width, page.Wide)
		}
		// Tables scroll in boxes of their own; nothing else may be cut off.
		var outside []string
		p.ask(`[...document.body.querySelectorAll("*")].filter((e) => e.checkVisibility() && !e.closest(".scroll, .hidden, label, .reply") && e.getBoundingClientRect().right > innerWidth + 0.5)
			.slice(0, 5).map((e) => e.localName + "." + e.className + " " + e.textContent.slice(0, 60))`, &outside)
		if len(outside) > 0 {
			t.Errorf("at %d pixels these do not fit: %q", width, outside)
		}
		for _, scheme := range []string{"light", "dark"} {
			if _, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
				Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
			}); err != nil {
				t.Fatal(err)
			}
			if bright := p.screenshot(fmt.Sprintf("%s-%d.png", scheme, width)); bright != (scheme == "light") {
				t.Errorf("in the %s scheme at %d pixels the background is bright: %t", scheme, width, bright)
			}
		}
	}
}

// screenshot writes what the screen shows to a file, and says whether its corner is bright.
func (p *demoPage) screenshot(name string) (bright bool) {
	p.t.Helper()
	shot, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		p.t.Fatal(err)
	}
	folder := *screenshots
	if folder == "" {
		folder = p.t.TempDir()
	}
	if err := os.WriteFile(filepath.Join(folder, name), shot, 0o600); err != nil {
		p.t.Fatal(err)
	}
	picture, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		p.t.Fatal(err)
	}
	red, green, blue, _ := picture.At(0, 0).RGBA()
	return red+green+blue > 3*0x8000
}
