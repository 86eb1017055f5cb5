// Package fakeprovider stands in for a model provider, or for a gateway before one, that speaks the OpenAI-compatible protocol:
// chats, pictures, idempotency keys, and the faults that real ones have.
//
// Tests call it, and the demonstration and the bot do for trying out. It answers a chat with the person's last words and a
// picture with two colors made of the prompt: the same for the same request. It never calls anybody, and keeps everything in memory.
package fakeprovider

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"image"
	"image/color"
	"image/png"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Fault is what happens to a call instead of its answer.
type Fault string

// The faults. Work is done in the last two only.
const (
	RateLimited     Fault = "rate_limited"     // 429
	Overloaded      Fault = "overloaded"       // 503
	Broken          Fault = "broken"           // 500
	GatewayTimeout  Fault = "gateway_timeout"  // 504
	BudgetExceeded  Fault = "budget_exceeded"  // 400, as LiteLLM says it
	QuotaExceeded   Fault = "quota_exceeded"   // 429 insufficient_quota, as OpenAI says it
	PaymentRequired Fault = "payment_required" // 402, as OpenRouter says it
	ContentRefused  Fault = "content_refused"  // 400 content_policy_violation
	Filtered        Fault = "filtered"         // 200, finish_reason content_filter; of pictures as ContentRefused
	Refused         Fault = "refused"          // 200 with a refusal of the model; of pictures as ContentRefused
	ErrorInside     Fault = "error_inside"     // 200 whose body is an error, as gateways say it that had begun to answer
	NotOurs         Fault = "not_ours"         // 200 with a page of somebody else
	LostAnswer      Fault = "lost_answer"      // it has worked, and the connection breaks before the answer
	CutAnswer       Fault = "cut_answer"       // it has worked, and the connection breaks in the middle of the answer
)

// Call is a request that came.
type Call struct {
	Path   string
	Key    string // its Idempotency-Key
	Model  string
	Prompt string // the last message, or the prompt of a picture
	Fault  Fault
}

// Provider is the stand-in, an http.Handler: POST /v1/chat/completions and /v1/images/generations. The zero value works.
type Provider struct {
	// Key is the API key that is asked for; empty: none is.
	Key string
	// Latency is how long work takes.
	Latency time.Duration
	// Cached is how much of a prompt is told as read from a cache, in tokens.
	Cached int64

	mu     sync.Mutex
	faults []Fault
	held   chan struct{}
	calls  []Call
	worked int
	kept   map[string]*work // by idempotency key
	keys   []string         // of what is kept, the oldest first
}

// most is how many calls and how many answers are remembered: a demonstration may run for long.
const most = 1000

// work is something that was worked on, and its answer once there is one.
type work struct {
	done   chan struct{}
	answer []byte
}

// Next gives the next calls faults, one each, in order; empty: none.
func (p *Provider) Next(faults ...Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, faults...)
}

// Hold makes work that begins from now on wait until it is let go.
func (p *Provider) Hold() (release func()) {
	held := make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = held
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.held == held {
			p.held = nil
		}
		close(held)
	})
}

// Calls are the latest requests that came, with repeats and failures, in order.
func (p *Provider) Calls() []Call {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.calls)
}

// Worked is how often it has worked, and so what it would send a bill for: a repeat under a key is no work.
func (p *Provider) Worked() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.worked
}

type request struct {
	Model    string `json:"model"`
	Messages []struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	} `json:"messages"`
	Prompt  string `json:"prompt"`
	Format  any    `json:"response_format"` // of a chat it is an object
	Longest int64  `json:"max_tokens"`
	Count   int    `json:"n"`
}

// ServeHTTP answers a request.
func (p *Provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if name, ok := strings.CutPrefix(r.URL.Path, "/pictures/"); ok && r.Method == http.MethodGet {
		w.Header().Set("Content-Type", "image/png")
		_, _ = w.Write(draw(name))
		return
	}
	var asked request
	picture := r.URL.Path == "/v1/images/generations"
	if r.Method != http.MethodPost || !picture && r.URL.Path != "/v1/chat/completions" {
		fail(w, http.StatusNotFound, "invalid_request_error", "unknown_url", "There is no such method.")
		return
	}
	if p.Key != "" && r.Header.Get("Authorization") != "Bearer "+p.Key {
		fail(w, http.StatusUnauthorized, "invalid_request_error", "invalid_api_key", "Incorrect API key provided: "+strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")+".")
		return
	}
	if err := json.NewDecoder(io.LimitReader(r.Body, 8<<20)).Decode(&asked); err != nil || asked.prompt() == "" {
		fail(w, http.StatusBadRequest, "invalid_request_error", nil, "We could not parse the JSON body of your request.")
		return
	}
	key := r.Header.Get("Idempotency-Key")
	fault := p.called(Call{Path: r.URL.Path, Key: key, Model: asked.Model, Prompt: asked.prompt()})
	if p.failed(w, fault, picture, &asked) {
		return
	}
	answer := p.work(r, key, func() []byte { return p.answer(picture, r.Host, &asked) })
	if answer == nil {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	switch fault {
	case LostAnswer:
		panic(http.ErrAbortHandler)
	case CutAnswer:
		w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
		_, _ = w.Write(answer[:len(answer)/2])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write(answer)
}

func (r *request) prompt() string {
	if len(r.Messages) > 0 {
		return r.Messages[len(r.Messages)-1].Content
	}
	return r.Prompt
}

// called writes a call down, and says what happens to it.
func (p *Provider) called(c Call) Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.faults) > 0 {
		c.Fault, p.faults = p.faults[0], p.faults[1:]
	}
	p.calls = append(p.calls, c)
	p.calls = p.calls[max(0, len(p.calls)-most):]
	return c.Fault
}

// work does what was not done under the key, and returns the answer; nil: the caller has gone. Work that has begun is done to its
// end, whoever has gone.
func (p *Provider) work(r *http.Request, key string, answer func() []byte) []byte {
	p.mu.Lock()
	begun, known := p.kept[key]
	if !known {
		begun = &work{done: make(chan struct{})}
		if key != "" {
			if p.kept == nil {
				p.kept = map[string]*work{}
			}
			p.kept[key] = begun
			p.keys = append(p.keys, key)
			if len(p.keys) > most {
				delete(p.kept, p.keys[0])
				p.keys = p.keys[1:]
			}
		}
		p.worked++
	}
	held := p.held
	p.mu.Unlock()
	if known {
		select {
		case <-begun.done:
			return begun.answer
		case <-r.Context().Done():
			return nil
		}
	}
	<-time.After(p.Latency)
	if held != nil {
		<-held
	}
	begun.answer = answer()
	close(begun.done)
	return begun.answer
}

func (p *Provider) answer(picture bool, host string, asked *request) []byte {
	said, finish := asked.prompt(), "stop"
	if runes := []rune(said); asked.Longest > 0 && tokens(said) > asked.Longest {
		said, finish = string(runes[:4*asked.Longest]), "length"
	}
	read, written := int64(0), tokens(said)
	for _, message := range asked.Messages {
		read += tokens(message.Content)
	}
	cached := min(p.Cached, read)
	if !picture {
		return marshal(map[string]any{
			"id": "chatcmpl-1", "object": "chat.completion", "model": asked.Model,
			"choices": []any{map[string]any{"index": 0, "finish_reason": finish, "message": map[string]any{"role": "assistant", "content": said, "refusal": nil}}},
			"usage": map[string]any{
				"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written, "prompt_tokens_details": map[string]any{"cached_tokens": cached},
			},
		})
	}
	var made []any
	for i := range min(max(asked.Count, 1), 10) {
		one := map[string]any{"revised_prompt": asked.Prompt}
		name := fmt.Sprintf("%016x.png", hashOf(fmt.Sprint(asked.Prompt, i)))
		if asked.Format == "url" {
			one["url"] = "http://" + host + "/pictures/" + name
		} else {
			one["b64_json"] = draw(name)
		}
		made = append(made, one)
	}
	read, written = tokens(asked.Prompt), int64(1000*len(made))
	return marshal(map[string]any{
		"data": made, "usage": map[string]any{"input_tokens": read, "output_tokens": written, "total_tokens": read + written},
	})
}

// failed answers a call that has a fault before any work, and reports whether it did.
func (p *Provider) failed(w http.ResponseWriter, fault Fault, picture bool, asked *request) bool {
	if picture && (fault == Filtered || fault == Refused) {
		fault = ContentRefused
	}
	switch fault {
	case RateLimited:
		w.Header().Set("Retry-After", "1")
		fail(w, http.StatusTooManyRequests, "requests", "rate_limit_exceeded", "Rate limit reached for requests.")
	case Overloaded:
		fail(w, http.StatusServiceUnavailable, "server_error", nil, "The engine is currently overloaded, please try again later.")
	case Broken:
		fail(w, http.StatusInternalServerError, "server_error", nil, "The server had an error while processing your request.")
	case GatewayTimeout:
		w.WriteHeader(http.StatusGatewayTimeout)
	case BudgetExceeded:
		fail(w, http.StatusBadRequest, "budget_exceeded", "400", "Budget has been exceeded! Current cost: 10.0, Max budget: 10.0")
	case QuotaExceeded:
		fail(w, http.StatusTooManyRequests, "insufficient_quota", "insufficient_quota", "You exceeded your current quota, please check your plan and billing details.")
	case PaymentRequired:
		write(w, http.StatusPaymentRequired, map[string]any{"error": map[string]any{"code": 402, "message": "Insufficient credits."}})
	case ContentRefused:
		fail(w, http.StatusBadRequest, "invalid_request_error", "content_policy_violation", "Your request was rejected as a result of our safety system.")
	case ErrorInside:
		write(w, http.StatusOK, map[string]any{"error": map[string]any{"code": 503, "message": "Provider is overloaded."}})
	case NotOurs:
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<html><body>Sign in to the network</body></html>")
	case Filtered, Refused:
		message, finish := map[string]any{"role": "assistant", "content": "I", "refusal": nil}, "content_filter"
		if fault == Refused {
			message, finish = map[string]any{"role": "assistant", "content": nil, "refusal": "I cannot help with that."}, "stop"
		}
		write(w, http.StatusOK, map[string]any{
			"id": "chatcmpl-1", "object": "chat.completion", "model": asked.Model,
			"choices": []any{map[string]any{"index": 0, "finish_reason": finish, "message": message}},
			"usage":   map[string]any{"prompt_tokens": tokens(asked.prompt()), "completion_tokens": 1},
		})
	default:
		return false
	}
	return true
}

func fail(w http.ResponseWriter, status int, kind string, code any, message string) {
	write(w, status, map[string]any{"error": map[string]any{"message": message, "type": kind, "param": nil, "code": code}})
}

func write(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(marshal(body))
}

func marshal(body any) []byte {
	raw, err := json.Marshal(body)
	if err != nil {
		panic(err) // it is made of maps, texts and numbers
	}
	return raw
}

// tokens counts about as providers do.
func tokens(text string) int64 { return int64(len([]rune(text))+3) / 4 }

func hashOf(text string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text))
	return h.Sum64()
}

// draw makes a picture: a disc on a ground, in two colors of its name.
func draw(name string) []byte {
	const side = 256
	colors := hashOf(name)
	shade := func(shift int) color.RGBA {
		return color.RGBA{uint8(colors >> shift), uint8(colors >> (shift + 8)), uint8(colors >> (shift + 16)), 255}
	}
	picture := image.NewPaletted(image.Rect(0, 0, side, side), color.Palette{shade(0), shade(24)})
	for x := range side {
		for y := range side {
			if dx, dy := x-side/2, y-side/2; dx*dx+dy*dy < side*side/9 {
				picture.SetColorIndex(x, y, 1)
			}
		}
	}
	var drawn bytes.Buffer
	if err := png.Encode(&drawn, picture); err != nil {
		panic(err) // a buffer takes everything
	}
	return drawn.Bytes()
}
