package redis

import (
	"bufio"
	"bytes"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/test/redistest"
)

// A stage is one Redis, and one connection to it on which calls are sent without
// waiting for each answer.
type stage struct {
	b    *testing.B
	addr string
	conn net.Conn
	in   *bufio.Reader
}

func newStage(b *testing.B) *stage {
	s := &stage{b: b, addr: redistest.Start(b).Addr}
	conn, err := net.Dial("tcp", s.addr)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close() })
	s.conn, s.in = conn, bufio.NewReaderSize(conn, 1<<20)
	return s
}

func encode(words ...string) []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, "*%d\r\n", len(words))
	for _, w := range words {
		fmt.Fprintf(&out, "$%d\r\n%s\r\n", len(w), w)
	}
	return out.Bytes()
}

// send sends commands and returns all answers to them.
func (s *stage) send(commands []byte) []byte {
	s.b.Helper()
	go s.conn.Write(append(commands, encode("echo", "the-end-of-a-pass--")...))
	var all []byte
	mark := []byte("$19\r\nthe-end-of-a-pass--\r\n")
	buf := make([]byte, 1<<16)
	for !bytes.HasSuffix(all, mark) {
		n, err := s.in.Read(buf)
		if err != nil {
			s.b.Fatal(err)
		}
		all = append(all, buf[:n]...)
	}
	if all = bytes.TrimSuffix(all, mark); bytes.HasPrefix(all, []byte("-")) || bytes.Contains(all, []byte("\r\n-ERR")) || bytes.Contains(all, []byte("\r\n-NOSCRIPT")) || bytes.Contains(all, []byte("\r\n-WRONGTYPE")) {
		s.b.Fatalf("an error among the answers: %.300q", all)
	}
	return all
}

// do sends one command and returns its answer without the framing.
func (s *stage) do(words ...string) string {
	all := s.send(encode(words...))
	line, rest, _ := strings.Cut(string(all), "\r\n")
	if line[0] == '$' {
		return strings.TrimSuffix(rest, "\r\n")
	}
	if line[0] == '*' {
		return rest
	}
	return line[1:]
}

// nextMillisecond returns when the clock of Redis shows another millisecond.
func (s *stage) nextMillisecond() {
	const script = "local t = redis.call('TIME') return t[1] .. string.sub('00000' .. t[2], -6, -4)"
	for first := s.do("eval", script, "0"); s.do("eval", script, "0") == first; {
	}
}

// load makes Redis know a script, and returns its hash.
func (s *stage) load(script string) string {
	s.do("script", "load", script)
	sum := sha1.Sum([]byte(script))
	return hex.EncodeToString(sum[:])
}

// cpu is what Redis has used, in µs, by the system's account.
func (s *stage) cpu() (usec float64) {
	for _, line := range strings.Split(s.do("info", "cpu"), "\r\n") {
		if name, v, _ := strings.Cut(line, ":"); name == "used_cpu_sys_main_thread" || name == "used_cpu_user_main_thread" {
			seconds, err := strconv.ParseFloat(v, 64)
			if err != nil {
				s.b.Fatal(err)
			}
			usec += 1e6 * seconds
		}
	}
	return usec
}

// checked wants a template to decide as many requests as it says: of each an answer
// of 1 + 2 numbers a claim, after the time.
func (s *stage) checked(t *template, claims int) *template {
	s.b.Helper()
	reply := s.send(t.with(nil, func(i int) string { return keyText(1<<22 + i) }, newID))
	want := fmt.Sprintf("*%d\r\n", 1+t.decided*(1+2*claims))
	if !bytes.HasPrefix(reply, []byte(want)) {
		s.b.Fatalf("a call of %d requests over %d claims answers %.40q, want %q", t.decided, claims, reply, want)
	}
	return t
}

// bytes is how much memory all keys take whose names hold the text.
func (s *stage) bytes(text string) (sum float64) {
	keys := readWords(s.send(encode("keys", "*"+text+"*")))
	for _, k := range keys {
		n, err := strconv.ParseFloat(s.do("memory", "usage", k, "samples", "0"), 64)
		if err != nil {
			s.b.Fatal(err)
		}
		sum += n
	}
	return sum
}

func readWords(reply []byte) (out []string) {
	in := bufio.NewReader(bytes.NewReader(reply))
	line, _ := in.ReadString('\n')
	n, _ := strconv.Atoi(strings.TrimSpace(line[1:]))
	for range n {
		line, _ = in.ReadString('\n')
		size, _ := strconv.Atoi(strings.TrimSpace(line[1:]))
		word := make([]byte, size+2)
		io.ReadFull(in, word)
		out = append(out, string(word[:size]))
	}
	return out
}
