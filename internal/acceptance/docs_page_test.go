package acceptance

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"image/png"
	"io"
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

// openAPI is what the page is compared with.
type openAPI struct {
	Paths      map[string]map[string]documentedCall
	Components struct{ Schemas map[string]schema }
}

type documentedCall struct {
	OperationID string
	Summary     string
	Parameters  []struct{ Name string }
	RequestBody body
	Responses   map[string]struct {
		body
		Headers map[string]any
	}
}

type body struct {
	Content map[string]struct{ Schema schema }
}

type schema struct {
	Ref        string `json:"$ref"`
	AnyOf      []schema
	Properties map[string]any
}

// fields are the names that the page shows for a body.
func (d *openAPI) fields(b body) []string {
	var names []string
	for _, content := range b.Content {
		names = append(names, d.names(content.Schema)...)
	}
	return names
}

func (d *openAPI) names(s schema) []string {
	var names []string
	for _, one := range s.AnyOf {
		names = append(names, d.names(one)...)
	}
	if _, name, found := strings.Cut(s.Ref, "#/components/schemas/"); found {
		s = d.Components.Schemas[name]
	}
	for name := range s.Properties {
		names = append(names, name)
	}
	return names
}

// docsPage is the page of a serving process, in a browser.
type docsPage struct {
	t        *testing.T
	ctx      context.Context
	url      string
	document openAPI
}

// openDocs opens the page. Whatever a test then does with it: everything comes from the server, nothing goes wrong in the
// console, and the page's own policy forbids nothing that it does.
func openDocs(t *testing.T) *docsPage {
	t.Helper()
	ctx := browser.New(t)
	s := serve(t, database(t))
	p := &docsPage{t: t, ctx: ctx, url: s.url + "/docs"}
	response, err := client.Get(s.url + "/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &p.document); err != nil || len(p.document.Paths) < 10 {
		t.Fatalf("%d paths (%v)", len(p.document.Paths), err)
	}
	notes := browser.Watch(ctx, t)
	t.Cleanup(func() {
		p.ask("1", new(int)) // whatever was noted before this answer has arrived
		requests := notes.Requests()
		for _, url := range requests {
			if !strings.HasPrefix(url, s.url+"/") {
				t.Errorf("it asks somebody else: %s", url)
			}
		}
		if !slices.Contains(requests, s.url+"/docs") || !slices.Contains(requests, s.url+"/openapi.json") {
			t.Errorf("only %v were noted, so nothing is known of the others", requests)
		}
		for _, fault := range notes.Faults() {
			t.Error(fault)
		}
	})
	p.open("")
	return p
}

// open loads the page with a fragment, and waits until it has read the document.
func (p *docsPage) open(fragment string) {
	p.t.Helper()
	p.do(chromedp.Navigate("about:blank"), chromedp.Navigate(p.url+fragment))
	browser.Until(p.ctx, p.t, `!document.getElementById("about").textContent.startsWith("Reading")`)
}

// do acts on the page. What is to be clicked and never appears ends the test.
func (p *docsPage) do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	limited, cancel := context.WithTimeout(p.ctx, time.Minute)
	defer cancel()
	if err := chromedp.Do(limited, steps...); err != nil {
		p.t.Fatal(err)
	}
}

// ask evaluates a script and decodes what it returns.
func (p *docsPage) ask(script string, into any) {
	p.t.Helper()
	text, err := chromedp.Run(p.ctx, chromedp.Evaluate[string]("JSON.stringify("+script+")"))
	if err == nil {
		err = json.Unmarshal([]byte(text), into)
	}
	if err != nil {
		p.t.Errorf("%s: %v", script, err)
	}
}

// names are those of the parameters, fields and headers that can be seen inside an element, sorted.
func (p *docsPage) names(id string) []string {
	p.t.Helper()
	var names []string
	p.ask(fmt.Sprintf(`[...document.getElementById(%q).querySelectorAll("dt.name")].filter((e) => e.checkVisibility()).map((e) => e.innerText)`, id), &names)
	slices.Sort(names)
	return names
}

func (p *docsPage) isOpen(id string) (open bool) {
	p.t.Helper()
	p.ask(fmt.Sprintf(`document.getElementById(%q).open`, id), &open)
	return open
}

// calls are all of the document, by their ids.
func (p *docsPage) calls() []documentedCall {
	var calls []documentedCall
	for _, item := range p.document.Paths {
		for _, call := range item {
			calls = append(calls, call)
		}
	}
	slices.SortFunc(calls, func(a, b documentedCall) int { return cmp.Compare(a.OperationID, b.OperationID) })
	return calls
}

func TestTheDocsPageShowsEveryCallOfTheDocument(t *testing.T) {
	p := openDocs(t)
	type row struct{ ID, Method, Path, Summary string }
	var shown, want []row
	p.ask(`[...document.querySelectorAll("#calls > details:has(.line)")].filter((e) => e.checkVisibility()).map((e) => {
		const [method, path, summary] = [".method", ".path", ".note"].map((part) => e.querySelector("summary " + part).innerText);
		return {id: e.id, method, path, summary};
	})`, &shown)
	for path, item := range p.document.Paths {
		for method, call := range item {
			want = append(want, row{call.OperationID, strings.ToUpper(method), path, call.Summary})
		}
	}
	for _, missing := range want {
		if i := slices.Index(shown, missing); i < 0 {
			t.Errorf("not shown: %+v", missing)
		} else {
			shown = slices.Delete(shown, i, i+1)
		}
	}
	if len(shown) > 0 {
		t.Errorf("shown and not documented, or twice: %+v", shown)
	}
	var about string
	p.ask(`document.getElementById("about").innerText`, &about)
	if !strings.Contains(about, "exactly once") {
		t.Errorf("the page says of the product only %q", about)
	}
}

func TestACallOfTheDocsPageOpensToItsFields(t *testing.T) {
	p := openDocs(t)
	compare := func(call documentedCall, when string, want []string) {
		t.Helper()
		slices.Sort(want)
		if got := p.names(call.OperationID); !slices.Equal(got, want) {
			t.Errorf("%s %s shows %q, want %q", call.OperationID, when, got, want)
		}
	}
	asked, answered := 0, 0
	for _, call := range p.calls() {
		compare(call, "closed", nil)
		p.do(chromedp.Click(chromedp.CSS("#" + call.OperationID + " > summary")))
		var want []string
		for _, parameter := range call.Parameters {
			want = append(want, parameter.Name)
		}
		want = append(want, p.document.fields(call.RequestBody)...)
		compare(call, "open", want)
		asked += len(want)
		for _, response := range call.Responses {
			fields := p.document.fields(response.body)
			answered += len(fields)
			want = append(want, fields...)
			for name := range response.Headers {
				want = append(want, name)
			}
		}
		p.ask(fmt.Sprintf(`document.getElementById(%q).querySelectorAll("details").forEach((e) => { e.open = true; }) || 1`, call.OperationID), new(int))
		compare(call, "with all its answers", want)
		var text string
		p.ask(fmt.Sprintf(`document.getElementById(%q).innerText`, call.OperationID), &text)
		for status := range call.Responses {
			if !strings.Contains(text, status) {
				t.Errorf("%s does not tell of status %s", call.OperationID, status)
			}
		}
	}
	if asked < 50 || answered < 500 {
		t.Errorf("%d fields of requests and %d of answers: the document was read wrongly", asked, answered)
	}
}

func TestEveryShapeOfTheDocsPageIsOneLinkAway(t *testing.T) {
	p := openDocs(t)
	var lost []string
	p.ask(`[...document.querySelectorAll("main a")].filter((e) => !document.getElementById(e.hash.slice(1))).map((e) => e.href)`, &lost)
	if len(lost) > 0 {
		t.Errorf("links that lead nowhere: %v", lost)
	}
	for name, shape := range p.document.Components.Schemas {
		var shown []string
		p.ask(fmt.Sprintf(`[...document.getElementById(%q).querySelectorAll("dt.name")].map((e) => e.textContent)`, name), &shown)
		if len(shown) != len(shape.Properties) {
			t.Errorf("shape %s shows %v", name, shown)
		}
	}
	p.open("#listReservations")
	if !p.isOpen("listReservations") {
		t.Error("a link to a call does not open it")
	}
	const ok = "#listReservations details:first-of-type"
	p.do(chromedp.Click(chromedp.CSS(ok+" > summary")), chromedp.Click(chromedp.CSS(ok+` a[href="#Reservation"]`)))
	// A link is followed before the page hears of it, so the answer to the click is not yet the answer of the page.
	browser.Until(p.ctx, t, `document.activeElement.parentElement.id === "Reservation"`)
	if !p.isOpen("Reservation") || len(p.names("Reservation")) == 0 {
		t.Error("the link to Reservation leads to it and does not open it")
	}
}

func TestTheDocsPageFitsNarrowAndWideScreensLightAndDark(t *testing.T) {
	p := openDocs(t)
	folder := t.TempDir()
	for _, width := range []int64{360, 768, 1600} {
		p.do(chromedp.EmulateViewport(width, 900))
		p.open("")
		for _, opened := range []bool{false, true} {
			p.ask(fmt.Sprintf(`document.querySelectorAll("details").forEach((e) => { e.open = %t; }) || 1`, opened), new(int))
			var page struct{ Inner, Wide int64 }
			p.ask(`{inner: innerWidth, wide: document.documentElement.scrollWidth}`, &page)
			if page.Inner != width || page.Wide > width {
				t.Errorf("at %d pixels, everything open %t: the page is %d wide", width, opened, page.Wide)
			}
			// Cut off, under something else or scrolled in a box of its own would be as bad.
			var outside []string
			p.ask(`[...document.body.querySelectorAll("*")].filter((e) => e.checkVisibility() && (e.getBoundingClientRect().right > innerWidth + 0.5 ||
				(getComputedStyle(e).display !== "inline" && e.scrollWidth > e.clientWidth + 1))).slice(0, 5).map((e) => e.localName + "." + e.className + " " + e.textContent.slice(0, 60))`, &outside)
			if len(outside) > 0 {
				t.Errorf("at %d pixels, everything open %t: these do not fit: %q", width, opened, outside)
			}
		}
		p.open("#reserve")
		for _, scheme := range []string{"light", "dark"} {
			if _, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
				Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
			}); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(folder, fmt.Sprintf("%s-%d.png", scheme, width))
			if bright := p.screenshot(file, int(width)); bright != (scheme == "light") {
				t.Errorf("in the %s scheme at %d pixels the background is bright: %t", scheme, width, bright)
			}
		}
	}
}

// screenshot writes what the screen shows to a file, and says whether its background is bright. It is at least a little
// text: not all of one color.
func (p *docsPage) screenshot(file string, width int) (bright bool) {
	p.t.Helper()
	shot, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(file, shot, 0o600); err != nil {
		p.t.Fatal(err)
	}
	picture, err := png.Decode(bytes.NewReader(shot))
	if err != nil || picture.Bounds().Dx() != width {
		p.t.Fatalf("the screenshot is %v (%v)", picture.Bounds(), err)
	}
	corner := picture.At(0, 0)
	red, green, blue, _ := corner.RGBA()
	bright = red+green+blue > 3*0x8000
	inked := 0
	for y := range picture.Bounds().Dy() {
		for x := range width {
			r, g, b, _ := picture.At(x, y).RGBA()
			if (r+g+b > 3*0x8000) != bright {
				inked++
			}
		}
	}
	if inked < 1000 {
		p.t.Errorf("%s shows nothing: %d pixels differ from the background", file, inked)
	}
	return bright
}

func TestTheDocsPageIsUsedByKeyboardAlone(t *testing.T) {
	p := openDocs(t)
	var order []string
	p.ask(`[...document.querySelectorAll("#calls > details:has(.line)")].map((e) => e.id)`, &order)
	type focus struct{ In, Outline string }
	var at focus
	tab := func() {
		t.Helper()
		p.do(chromedp.KeyEvent(kb.Tab))
		p.ask(`{in: document.activeElement.parentElement.id || document.activeElement.getAttribute("href"), outline: getComputedStyle(document.activeElement).outlineStyle}`, &at)
		if at.Outline != "solid" {
			t.Errorf("the focus in %q cannot be seen: outline %q", at.In, at.Outline)
		}
	}
	tab()
	if at.In != "/openapi.json" {
		t.Errorf("the first stop is %q, want the document", at.In)
	}
	for _, id := range order {
		tab()
		if at.In != id {
			t.Fatalf("the next stop is %q, want %q", at.In, id)
		}
		for _, key := range []string{kb.Enter, " "} { // opens, and closes again
			before := p.isOpen(id)
			p.do(chromedp.KeyEvent(key))
			if p.isOpen(id) == before {
				t.Errorf("key %q does nothing to %s", key, id)
			}
		}
	}
	if len(order) != len(p.calls()) {
		t.Errorf("%d stops for %d calls", len(order), len(p.calls()))
	}
}
