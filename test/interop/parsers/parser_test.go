//go:build parsers

package parsers

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-proxy/weir/proxy/http1"
)

// A message is one that was read whole.
type message struct {
	what    string // the method, or the status
	target  string
	fields  []string // "name: value", names in small letters and in order, values as they came
	body    string
	trailer []string
}

// A reading is what one parser has made of some bytes: the messages it has read whole,
// and why there is no other.
type reading struct {
	messages []message
	why      string
}

// final is the reading without interim answers.
func (r reading) final() reading {
	r.messages = slices.DeleteFunc(slices.Clone(r.messages), func(m message) bool { return strings.HasPrefix(m.what, "1") })
	r.messages = r.messages[:min(1, len(r.messages))]
	return r
}

// A parser is a program that says what it reads; hyper/src/main.rs has how.
type parser struct {
	name string
	to   io.Writer
	from *bufio.Reader
}

func start(t *testing.T, name, program string, args ...string) *parser {
	t.Helper()
	c := exec.Command(program, args...)
	c.Stderr = os.Stderr
	to, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	from, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		to.Close() // it ends with its input
		if err := c.Wait(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	})
	return &parser{name, to, bufio.NewReader(from)}
}

func (p *parser) read(t *testing.T, kind byte, raw []byte) reading {
	t.Helper()
	said := binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(raw)))
	if _, err := p.to.Write(append(said, raw...)); err != nil {
		t.Fatalf("%s: %v", p.name, err)
	}
	var length [4]byte
	if _, err := io.ReadFull(p.from, length[:]); err != nil {
		t.Fatalf("%s: %v", p.name, err)
	}
	answer := make([]byte, binary.BigEndian.Uint32(length[:]))
	if _, err := io.ReadFull(p.from, answer); err != nil {
		t.Fatalf("%s: %v", p.name, err)
	}
	return understood(t, string(answer))
}

func understood(t *testing.T, answer string) (r reading) {
	t.Helper()
	var m message
	for line := range strings.Lines(answer) {
		words := strings.Fields(line)
		for i := 1; i < len(words); i++ {
			b, err := hex.DecodeString(words[i][1:])
			if err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			words[i] = string(b)
		}
		switch words[0] {
		case "m":
			m = message{what: words[1], target: words[2]}
		case "f":
			m.fields = append(m.fields, field(words[1], words[2]))
		case "t":
			m.trailer = append(m.trailer, field(words[1], words[2]))
		case "b":
			m.body = words[1]
			m.sort()
			r.messages = append(r.messages, m)
		case "e":
			r.why = words[1]
		}
	}
	return r
}

// field is a field in one spelling. llhttp leaves taking off blanks to its user.
func field(name, value string) string {
	return strings.ToLower(name) + ": " + strings.Trim(value, " \t")
}

func (m *message) sort() {
	byName := func(a, b string) int {
		a, _, _ = strings.Cut(a, ":")
		b, _, _ = strings.Cut(b, ":")
		return strings.Compare(a, b)
	}
	slices.SortStableFunc(m.fields, byName)
	slices.SortStableFunc(m.trailer, byName)
}

// A canned connection brings given bytes and then its end, and takes everything.
type canned struct {
	rest    []byte
	reading reading
	asked   chan struct{} // nothing comes before it is closed, unless it is nil
	once    sync.Once
}

func (c *canned) Read(p []byte) (int, error) {
	if c.asked != nil {
		<-c.asked
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

func (c *canned) Write(p []byte) (int, error) {
	if c.asked != nil {
		c.once.Do(func() { close(c.asked) })
	}
	return len(p), nil
}

func (*canned) Close() error                     { return nil }
func (*canned) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (*canned) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (*canned) SetDeadline(time.Time) error      { return nil }
func (*canned) SetReadDeadline(time.Time) error  { return nil }
func (*canned) SetWriteDeadline(time.Time) error { return nil }

// served is what Weir's server reads.
func served(raw []byte) reading {
	w := &canned{rest: raw}
	s := &http1.Server{
		Handler: func(x *http1.Exchange) {
			m := message{what: strings.Clone(x.Method()), target: strings.Clone(x.Target()), fields: copied(&x.Fields)}
			if b := x.Body(); b != nil {
				body, err := io.ReadAll(b)
				if err != nil {
					w.reading.why = err.Error()
					x.Abort()
					return
				}
				m.body, m.trailer = string(body), copied(b.Trailer())
			}
			m.sort()
			w.reading.messages = append(w.reading.messages, m)
			x.Begin(200)
			_ = x.Send(nil)
		},
		ErrorHandler: func(x *http1.Exchange, err error) {
			w.reading.why = err.Error()
			x.Abort()
		},
	}
	s.ServeConn(w)
	s.Close()
	return w.reading
}

// called is what Weir's client reads.
func called(raw []byte, method string) (r reading) {
	client := &http1.Client{}
	pool := client.NewPool(http1.Endpoint{Dial: func(context.Context, string, string) (net.Conn, error) {
		return &canned{rest: raw, asked: make(chan struct{})}, nil
	}})
	defer pool.Close()
	c := client.NewCall(nil)
	defer c.Release()
	c.Interim = func(*http1.Response) {}
	c.Begin(method, "a", "/")
	if err := pool.Send(c); err != nil {
		return reading{why: unwrapped(err).Error()}
	}
	m := message{what: strconv.Itoa(c.Response.Status), fields: copied(&c.Response.Fields)}
	body, err := io.ReadAll(c.Body())
	if err != nil {
		return reading{why: err.Error()}
	}
	m.body, m.trailer = string(body), copied(c.Body().Trailer())
	m.sort()
	return reading{messages: []message{m}}
}

func unwrapped(err error) error {
	var fault *http1.CallError
	if errors.As(err, &fault) {
		return fault.Err
	}
	return err
}

func copied(f *http1.Fields) (lines []string) {
	for line := range f.All() {
		lines = append(lines, field(line.Name, line.Value))
	}
	return lines
}
