package pgtest

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
)

// Proxy stands between a client and a server, and cuts connections where a test wants them cut. It reads the protocol's
// messages (https://www.postgresql.org/docs/current/protocol-message-formats.html), and only what a client sends without
// TLS in the extended protocol: pgx does in all its modes but simple_protocol.
type Proxy struct {
	server   string
	listener net.Listener

	mutex   sync.Mutex
	orders  *orders // nil: nothing is to be cut
	open    map[net.Conn]bool
	refuses bool
	closed  bool
	working sync.WaitGroup
}

// orders say where to cut. The connection that first sends something has them from then on.
type orders struct {
	statements int  // to be let through to the server
	answer     bool // then wait for the server's whole answer, and keep it
	cut        chan struct{}
}

// NewProxy starts a proxy to the server that a URL leads to, and ends it with the test.
func NewProxy(t testing.TB, to string) *Proxy {
	t.Helper()
	parsed, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{server: parsed.Host, listener: listener, open: map[net.Conn]bool{}}
	p.working.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// Through is the URL that leads to the same database through the proxy.
func (p *Proxy) Through(to string) string {
	parsed, err := url.Parse(to)
	if err != nil {
		return to
	}
	parsed.Host = p.listener.Addr().String()
	return parsed.String()
}

// CutBefore lets so many of the statements through that the next client sends, and then cuts its connection without
// having sent on the rest. With 0 nothing of them arrives. The channel is closed when the connection was cut.
func (p *Proxy) CutBefore(statement int) (cut <-chan struct{}) {
	return p.order(&orders{statements: statement})
}

// CutAnswer lets everything through that the next client sends, waits until the server has answered all of it, and cuts
// the connection without having sent the answer on: what was asked for has happened, and the client will not learn it.
func (p *Proxy) CutAnswer() (cut <-chan struct{}) {
	return p.order(&orders{statements: -1, answer: true})
}

func (p *Proxy) order(o *orders) <-chan struct{} {
	o.cut = make(chan struct{})
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.orders = o
	return o.cut
}

// CutAll cuts every connection there is.
func (p *Proxy) CutAll() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for conn := range p.open {
		_ = conn.Close()
	}
}

// Refuse lets no further connection through, or again lets all of them through.
func (p *Proxy) Refuse(yes bool) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.refuses = yes
}

func (p *Proxy) close() {
	_ = p.listener.Close()
	p.mutex.Lock()
	p.closed = true
	p.mutex.Unlock()
	p.CutAll()
	p.working.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.working.Go(func() { p.serve(client) })
	}
}

// remember notes a connection, so that it can be cut; false: it is cut already.
func (p *Proxy) remember(conns ...net.Conn) bool {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.refuses || p.closed {
		return false
	}
	for _, conn := range conns {
		p.open[conn] = true
	}
	return true
}

func (p *Proxy) forget(conns ...net.Conn) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for _, conn := range conns {
		_ = conn.Close()
		delete(p.open, conn)
	}
}

func (p *Proxy) serve(client net.Conn) {
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		_ = client.Close()
		return
	}
	defer p.forget(client, server)
	if !p.remember(client, server) {
		return
	}
	link := &link{proxy: p, client: client, server: server}
	p.working.Go(func() {
		defer p.forget(client, server)
		_ = link.answers() // the end of one direction is the end of the other
	})
	_ = link.questions()
}

// link is one connection on its way through the proxy.
type link struct {
	proxy          *Proxy
	client, server net.Conn

	mutex  sync.Mutex
	orders *orders // once they are its own
	sent   int     // statements let through under orders
}

// mine returns the orders of this connection, taking them where nobody has.
func (l *link) mine() *orders {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.orders == nil {
		l.proxy.mutex.Lock()
		defer l.proxy.mutex.Unlock()
		l.orders, l.proxy.orders = l.proxy.orders, nil
	}
	return l.orders
}

func (l *link) given() *orders {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.orders
}

var errCut = errors.New("cut as ordered")

func (l *link) cut(o *orders) error {
	l.proxy.forget(l.client, l.server)
	close(o.cut)
	return errCut
}

const (
	bind           = 'B' // begins a statement: what describes and executes it follows
	query          = 'Q'
	terminate      = 'X'
	parse          = 'P'
	readyForQuery  = 'Z'
	mostOfAMessage = 1 << 30
)

// questions hands on what the client sends.
func (l *link) questions() error {
	from := bufio.NewReader(l.client)
	first, err := message(from, false) // the first one has no type
	if err != nil {
		return err
	}
	if _, err := l.server.Write(first); err != nil {
		return err
	}
	for {
		m, err := message(from, true)
		if err != nil {
			return err
		}
		if kind := m[0]; kind == bind || kind == query || kind == parse {
			if o := l.mine(); o != nil && kind != parse && o.statements >= 0 {
				if l.sent == o.statements {
					return l.cut(o)
				}
				l.sent++
			}
		}
		if _, err := l.server.Write(m); err != nil {
			return err
		}
		if m[0] == terminate {
			return nil
		}
	}
}

// answers hands on what the server sends, unless it is to be kept.
func (l *link) answers() error {
	from := bufio.NewReader(l.server)
	for {
		m, err := message(from, true)
		if err != nil {
			return err
		}
		if o := l.given(); o != nil && o.answer {
			if m[0] == readyForQuery {
				return l.cut(o)
			}
			continue
		}
		if _, err := l.client.Write(m); err != nil {
			return err
		}
	}
}

// message reads one message whole: a type, unless it is the first, a length that counts itself, and the rest.
func message(from *bufio.Reader, typed bool) ([]byte, error) {
	head := 4
	if typed {
		head = 5
	}
	m := make([]byte, head)
	if _, err := io.ReadFull(from, m); err != nil {
		return nil, err
	}
	length := binary.BigEndian.Uint32(m[head-4:])
	if length < 4 || length > mostOfAMessage {
		return nil, fmt.Errorf("a message of %d bytes", length)
	}
	rest := make([]byte, length-4)
	if _, err := io.ReadFull(from, rest); err != nil {
		return nil, err
	}
	return append(m, rest...), nil
}
