//go:build parsers

// Package parsers compares what Weir's HTTP/1.1 reads of generated messages with what
// llhttp and hyper read of the same bytes. Its script is run.
package parsers

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/rounds"
)

// A run is what the tests share: the other parsers, and how much they are asked.
type run struct {
	others []*parser
	count  int
	seed   uint64
}

// begin starts the parsers and says how to see the same again.
func begin(t *testing.T) *run {
	t.Helper()
	r := &run{count: rounds.Setting(t, "WEIR_PARSERS_COUNT", 20_000), seed: uint64(rounds.Setting(t, "WEIR_PARSERS_SEED", int(time.Now().UnixNano()&0xffffff)))}
	cache := os.Getenv("WEIR_PARSERS")
	if cache == "" {
		t.Fatal("WEIR_PARSERS is not set: use test/interop/parsers/run")
	}
	r.others = []*parser{
		start(t, "llhttp", "node", cache+"/llhttp/parser.mjs"),
		start(t, "hyper", cache+"/hyper/release/parser"),
	}
	fmt.Printf("%s: WEIR_PARSERS_SEED=%d, %d messages\n", t.Name(), r.seed, r.count)
	return r
}

func (r *run) random() *rand.Rand { return rand.New(rand.NewPCG(r.seed, 1)) }

// Every request that Weir accepts is the same request for the others, and none that
// all of them refuse is one for Weir.
func TestRequests(t *testing.T) {
	r := begin(t)
	random := r.random()
	tally := newTally(t, r.others)
	for range r.count {
		raw := varied(random, requests())
		tally.compare(raw, served(raw), r.ask(t, 'Q', raw))
	}
	tally.report()
}

// Every answer that Weir accepts is the same answer for the others.
func TestAnswers(t *testing.T) {
	r := begin(t)
	random := r.random()
	tally := newTally(t, r.others)
	for range r.count {
		raw, kind, method := varied(random, answers()), byte('G'), "GET"
		if random.IntN(5) == 0 {
			kind, method = 'H', "HEAD"
		}
		ours := called(raw, method)
		theirs := r.ask(t, kind, raw)
		for i := range theirs {
			theirs[i] = theirs[i].final()
		}
		tally.compare(raw, ours, theirs)
	}
	tally.report()
}

func (r *run) ask(t *testing.T, kind byte, raw []byte) []reading {
	t.Helper()
	var all []reading
	for _, p := range r.others {
		all = append(all, p.read(t, kind, raw))
	}
	return all
}

// A tally compares, and counts what came of it.
type tally struct {
	t        *testing.T
	others   []*parser
	accepted int            // messages that Weir has read
	same     map[string]int // of them, by parser
	listed   map[string]int // differences that have a reason, by parser and reason
	failed   int
}

func newTally(t *testing.T, others []*parser) *tally {
	return &tally{t: t, others: others, same: map[string]int{}, listed: map[string]int{}}
}

// compare holds what Weir has read of raw to what each other has.
func (t *tally) compare(raw []byte, ours reading, theirs []reading) {
	t.accepted += len(ours.messages)
	refused := make([]int, len(ours.messages))
	for i, other := range theirs {
		for at, m := range ours.messages {
			d := difference(m, other, at)
			if d == "" {
				t.same[t.others[i].name]++
				continue
			}
			why, ok := (&disagreement{t.others[i].name, m, other, d, string(raw)}).reason()
			if at >= len(other.messages) && !ok {
				refused[at]++
			}
			if !ok {
				t.fail("%s: %q\n  ours   %+v\n  theirs %+v\n  %s", t.others[i].name, raw, ours, other, d)
			} else {
				t.listed[t.others[i].name+": "+why]++
			}
			break // what follows has another beginning for the two
		}
	}
	for _, n := range refused {
		if n == len(theirs) {
			t.fail("accepted what all refuse: %q\n  ours   %+v\n  theirs %+v", raw, ours, theirs)
		}
	}
}

func (t *tally) fail(format string, args ...any) {
	if t.failed++; t.failed <= 20 {
		t.t.Errorf(format, args...)
	}
}

func (t *tally) report() {
	for _, p := range t.others {
		fmt.Printf("%s: of %d messages that Weir accepted, %s reads %d as the same\n", t.t.Name(), t.accepted, p.name, t.same[p.name])
	}
	for _, why := range slices.Sorted(maps.Keys(t.listed)) {
		fmt.Printf("  %5d  %s\n", t.listed[why], why)
	}
	if t.failed > 0 {
		fmt.Printf("%s: %d differences without a reason\n", t.t.Name(), t.failed)
	}
	if t.accepted < 1000 {
		t.t.Errorf("only %d messages were accepted; this shows nothing", t.accepted)
	}
}

// nothingRead begins the difference to a parser that has refused the message.
const nothingRead = "there is none: "

// difference says in what the message of the other at that place is another; nothing if
// it is the same.
func difference(m message, other reading, at int) string {
	if at >= len(other.messages) {
		return nothingRead + other.why
	}
	o := other.messages[at]
	switch {
	case o.what != m.what:
		return "method or status"
	case m.target != "" && plain(o.target) != plain(m.target):
		return "target"
	case !slices.Equal(o.fields, m.fields):
		return "fields"
	case o.body != m.body:
		return "body"
	}
	for _, line := range m.trailer { // those that must not stand there are left out here
		if !slices.Contains(o.trailer, line) {
			return "trailer"
		}
	}
	return ""
}

// plain is a target with what hyper's type for it changes: a scheme in small letters,
// and a path where there is none (RFC 9110 section 4.2.3).
func plain(target string) string {
	if scheme, rest, ok := strings.Cut(target, "://"); ok && !strings.HasPrefix(target, "/") {
		if !strings.Contains(rest, "/") {
			host, query, asked := strings.Cut(rest, "?")
			if rest = host + "/"; asked {
				rest += "?" + query
			}
		} else if before, path, _ := strings.Cut(rest, "/"); strings.Contains(before, "?") {
			host, query, _ := strings.Cut(before+"/"+path, "?")
			rest = host + "/?" + query
		}
		return strings.ToLower(scheme) + "://" + rest
	}
	return target
}

// A known difference has a reason, and a section that says who may be of that mind.
type known struct {
	parser string
	error  string // with which the other refuses what Weir accepts, or in what it differs
	of     func(m message, other reading, raw string) bool
	reason string
}

// A disagreement is what Weir and another parser have read of the same bytes.
type disagreement struct {
	parser     string
	m          message
	other      reading
	difference string
	raw        string
}

func differences() []known {
	return []known{
		{"llhttp", "HPE_INVALID_METHOD", func(m message, _ reading, _ string) bool { return !slices.Contains(registered(), m.what) },
			"any token may be a method, and llhttp knows a list of them (RFC 9110 section 9.1)"},
		{"llhttp", "HPE_PAUSED_UPGRADE", func(message, reading, string) bool { return true },
			"llhttp leaves what follows a request to upgrade to its user; Weir does until 101, and it is a request otherwise (RFC 9110 section 7.8)"},
		{"llhttp", "HPE_INVALID_TRANSFER_ENCODING", chunked, "a trailer field that says how to read the message is dropped (RFC 9110 section 6.5.1)"},
		{"llhttp", "HPE_INVALID_CONTENT_LENGTH", chunked, "a trailer field that says how to read the message is dropped (RFC 9110 section 6.5.1)"},
		{"llhttp", "HPE_INVALID_CONTENT_LENGTH Invalid character in Content-Length", func(m message, _ reading, _ string) bool { return !chunked(m, reading{}, "") },
			"a tab after a length is a blank like any other (RFC 9110 section 5.5)"},
		{"llhttp", "HPE_UNEXPECTED_CONTENT_LENGTH", chunked, "a trailer field that says how to read the message is dropped (RFC 9110 section 6.5.1)"},
		{"llhttp", "HPE_STRICT Invalid character in chunk extensions", chunked, "what an extension says is not looked at, and nothing of it is sent on (RFC 9112 section 7.1.1)"},
		{"llhttp", "HPE_CLOSED_CONNECTION", closedBefore, "neither an interim answer nor a trailer field ends a connection (RFC 9110 sections 15.2 and 6.5.1)"},
		{"hyper", "invalid URI", func(m message, _ reading, _ string) bool { return m.target != "" },
			"printable bytes that no URI has are sent on in a target as they are (RFC 9112 section 3)"},
		{"llhttp", "HPE_CR_EXPECTED", answerWith(loneLF), "a line of an answer may end with LF alone (RFC 9112 section 2.2)"},
		{"llhttp", "HPE_INVALID_HEADER_TOKEN Invalid header", answerWith(loneLF), "a line of an answer may end with LF alone (RFC 9112 section 2.2)"},
		{"llhttp", "HPE_INVALID_STATUS", answerWith(loneLF), "a line of an answer may end with LF alone (RFC 9112 section 2.2)"},
		{"llhttp", "HPE_LF_EXPECTED", answerWith(loneLF), "a line of an answer may end with LF alone (RFC 9112 section 2.2)"},
		{"llhttp", "HPE_INVALID_HEADER_TOKEN", answerWith(blankBeforeColon), "blanks before the colon in an answer are left out (RFC 9112 section 5.1)"},
		{"hyper", "invalid HTTP header parsed", answerWith(blankBeforeColon), "blanks before the colon in an answer are left out (RFC 9112 section 5.1)"},
		{"hyper", "error reading a body", answerWith(blankBeforeColon), "blanks before the colon in an answer are left out (RFC 9112 section 5.1)"},
		{"hyper", "error reading a body", answerWith(loneLF), "a line of an answer may end with LF alone (RFC 9112 section 2.2)"},
		{"llhttp", "HPE_INVALID_CHUNK_SIZE", answerWith(blankAfterSize), "blanks after the size of a chunk in an answer are left out (RFC 9112 section 7.1.1)"},
		{"llhttp", "body", answerWith(tabAfterCoding), "a tab after a coding is a blank like any other (RFC 9110 section 5.5)"},
		{"llhttp", "body", resetContent, "a body of a 205 is left out (RFC 9110 section 15.3.6)"},
		{"hyper", "body", resetContent, "a body of a 205 is left out (RFC 9110 section 15.3.6)"},
		{"llhttp", "HPE_UNEXPECTED_CONTENT_LENGTH Duplicate", answerWith(repeatedLength), "an answer may repeat its length (RFC 9112 section 6.3)"},
	}
}

// registered are the methods that llhttp knows, of those that are not for another
// protocol.
func registered() []string {
	return strings.Fields("DELETE GET HEAD POST PUT CONNECT OPTIONS TRACE COPY LOCK MKCOL MOVE PROPFIND PROPPATCH SEARCH UNLOCK BIND REBIND UNBIND ACL REPORT MKACTIVITY CHECKOUT MERGE M-SEARCH NOTIFY SUBSCRIBE UNSUBSCRIBE PATCH PURGE MKCALENDAR LINK UNLINK SOURCE QUERY")
}

// What Weir takes in an answer and never in a request, for an answer is of the server that
// the operator chose.
var (
	loneLF           = regexp.MustCompile(`[^\r]\n`)
	blankBeforeColon = regexp.MustCompile(`\n[!-9;-~]+[ \t]+:`)
	blankAfterSize   = regexp.MustCompile(`\n[0-9a-fA-F]+[ \t]+[\r\n;]`)
	tabAfterCoding   = regexp.MustCompile(`(?i)chunked[ \t]*\t`)
	repeatedLength   = regexp.MustCompile(`(?is)\ncontent-length[ \t]*:.*\ncontent-length[ \t]*:`)
)

func answerWith(this *regexp.Regexp) func(message, reading, string) bool {
	return func(m message, _ reading, raw string) bool { return m.target == "" && this.MatchString(raw) }
}

func resetContent(m message, _ reading, _ string) bool { return m.what == "205" && m.body == "" }

func chunked(m message, _ reading, _ string) bool {
	return slices.ContainsFunc(m.fields, func(line string) bool { return strings.EqualFold(line, "transfer-encoding: chunked") })
}

// closedBefore reports whether what ended the connection for the other was no field of a
// request, nor of a final answer.
func closedBefore(m message, other reading, _ string) bool {
	if m.target == "" { // interim answers have been taken out
		return len(other.messages) == 0
	}
	last := other.messages[len(other.messages)-1]
	return chunked(last, other, "") && slices.ContainsFunc(last.trailer, func(line string) bool { return strings.HasPrefix(line, "connection: ") })
}

// reason is why another parser refuses what Weir has read as m, or has another body in it, if
// that is known. There is none for another method, status, target or field.
func (d *disagreement) reason() (string, bool) {
	for _, k := range differences() {
		if k.parser == d.parser && strings.HasPrefix(strings.TrimPrefix(d.difference, nothingRead), k.error) && k.of(d.m, d.other, d.raw) {
			return k.reason, true
		}
	}
	return "", false
}
