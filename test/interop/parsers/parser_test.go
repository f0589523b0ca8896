//go:build parsers

package parsers

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
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
