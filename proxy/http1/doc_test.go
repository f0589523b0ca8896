package http1

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/test/sockettest"
)

// An example is a message to which a rule of the package's documentation applies, as the
// rest of a request and as the rest of a response after their start lines. Bars stand for
// CRLF.
type example struct{ request, response string }

// chunked is an example with the same body in both directions.
func chunked(body string) example {
	return example{"Host: a|Transfer-Encoding: chunked||" + body, "Transfer-Encoding: chunked||" + body}
}

// both is an example with the same fields in both directions.
func both(fields, body string) example {
	return example{"Host: a|" + fields + "|" + body, fields + "|" + body}
}

func examples() map[string]example {
	return map[string]example{
		"a line that ends with LF alone":       {"Host: a\nX: y||", "X: y\nContent-Length: 0||"},
		"an empty line before the start line":  {"^Host: a||", "^Content-Length: 0||"},
		"CR that no LF follows":                both("X: a\rb|", ""),
		"NUL and other controls in a value":    both("X: a\x00b|", ""),
		"a folded line":                        both("X: a| b|", ""),
		"blanks before a colon":                both("X : a|Content-Length: 0|", ""),
		"two equal Content-Length":             both("Content-Length: 2|Content-Length: 2|", "hi"),
		"two different Content-Length":         both("Content-Length: 2|Content-Length: 3|", "hi"),
		"Content-Length and Transfer-Encoding": both("Content-Length: 2|Transfer-Encoding: chunked|", "2|hi|0||"),
		"another coding than chunked":          both("Transfer-Encoding: gzip, chunked|", "2|hi|0||"),
		"a chunk size of many zeros":           chunked(strings.Repeat("0", 200) + "2|hi|0||"),
		"a chunk size of 2^62 or more":         chunked("4000000000000000|hi|0||"),
		"blanks between a chunk size and CRLF": chunked("2 \t|hi|0||"),
		"blanks around an extension":           chunked("2 ; a = b|hi|0||"),
		"quoted strings in an extension":       chunked(`2;a="; \" b"|hi|0||`),
		"CR or LF in a quoted string":          chunked("2;a=\"|\"|hi|0||"),
		"a chunk line of 1 KiB":                chunked("2;" + strings.Repeat("a", 1000) + "|hi|0||"),
		"a chunk line of more than 4 KiB":      chunked("2;" + strings.Repeat("a", 4100) + "|hi|0||"),
		"trailer fields beyond the limits":     chunked("2|hi|0|" + strings.Repeat("X: y|", 33) + "|"),
		"an invalid trailer field":             chunked("2|hi|0|X y: z||"),
		"a status of 600 to 999":               {"", "999Content-Length: 0||"},
		"a body of a response 205":             {"", "205Content-Length: 2||hi"},
		"more than 100 interim responses":      {"", strings.Repeat("103|HTTP/1.1 ", 101) + "200 OK|Content-Length: 0||"},
	}
}

// docRow matches a rule in the package's documentation.
var docRow = regexp.MustCompile(`^//\t(\S.*?)  +(refused|accepted|left out|-) +(refused|accepted|left out|-) +911`)

// Each rule of the documentation is what the parsers do.
func TestDoc_RulesOfWhatIsAccepted(t *testing.T) {
	file, err := os.Open("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	all, rows := examples(), 0
	for lines := bufio.NewScanner(file); lines.Scan(); {
		m := docRow.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		rows++
		e, known := all[m[1]]
		if !known {
			t.Errorf("there is no example of %q", m[1])
			continue
		}
		if m[2] != "-" && readRequest(t, e.request) != (m[2] != "refused") {
			t.Errorf("%s, from clients: the documentation says %s", m[1], m[2])
		}
		if got := readResponse(t, e.response); got != (m[3] != "refused") {
			t.Errorf("%s, from upstreams: accepted %t; the documentation says %s", m[1], got, m[3])
		}
	}
	if rows != len(all) {
		t.Errorf("%d rules; there are %d examples", rows, len(all))
	}
}

// readRequest reports whether a proxy forwards a request with this body.
func readRequest(t *testing.T, rest string) bool {
	t.Helper()
	start := "POST / HTTP/1.1|"
	if after, ok := strings.CutPrefix(rest, "^"); ok {
		start, rest = "|"+start, after
	}
	address := sockettest.Upstream(t, func(c net.Conn, r *bufio.Reader) {
		if req, err := http.ReadRequest(r); err == nil {
			if _, err := io.ReadAll(req.Body); err == nil {
				_, _ = io.WriteString(c, lined(okAnswer))
			}
		}
	})
	res, _ := proxyTo(t, address, nil).dial(t, lined(start+rest)).ReadResponse("POST")
	return res.StatusCode == 200
}

// readResponse reports whether the response to a request can be read, to its end.
func readResponse(t *testing.T, rest string) bool {
	t.Helper()
	start := "HTTP/1.1 200 OK|"
	switch {
	case strings.HasPrefix(rest, "^"):
		start, rest = "|"+start, rest[1:]
	case strings.HasPrefix(rest, "103|"):
		start = "HTTP/1.1 "
	case rest[0] >= '0' && rest[0] <= '9':
		start, rest = "HTTP/1.1 "+rest[:3]+" X|", rest[3:]
	}
	address, _ := answering(t, lined(strings.ReplaceAll(start+rest, "103|", "103 Early Hints||")))
	_, err := ask(t, poolTo(t, &Client{}, endpointOf(t, address)), "/")
	return err == nil
}
