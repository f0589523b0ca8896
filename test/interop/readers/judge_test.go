//go:build readers

package readers

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// spoof is in every forwarded field that a client makes up.
const spoof = "spoof.example"

// A leak is a request that got through though what the reader read was not counted.
type leak struct {
	what    string // of which kind
	message *message
	answer  answer
	probe   string // what shows it
}

// A judge compares what one reader reads with what Weir counts.
type judge struct {
	weir, upstream string // addresses
}

// judge sends m and returns the leak it is, nil if it is none, and whether a reader
// acted on it.
func (j judge) judge(m *message, prime *message) (*leak, bool, error) {
	if prime != nil {
		if a, err := send(j.weir, prime); err != nil || !a.acted {
			return nil, false, fmt.Errorf("a plain request got %d: %w", a.status, err)
		}
	}
	a, err := send(j.weir, m)
	if err != nil || !a.acted {
		return nil, false, err
	}
	found := func(format string, args ...any) *leak {
		return &leak{what: a.route + ": " + strings.Join(m.labels, ", "), message: m, answer: a, probe: fmt.Sprintf(format, args...)}
	}
	for _, text := range a.read["forwarded"] {
		if strings.Contains(text, spoof) {
			return found("the reader believes a forwarded field that the client made up: %q", text), true, nil
		}
	}
	if slices.Contains(a.read["host"], j.upstream) {
		return found("the reader was shown its own address as the host"), true, nil
	}
	if prime != nil && a.route == "mark" && slices.Equal(joined(a.read["header"], digits), digits(value(prime, "X-Phone"))) {
		if mark := a.read["mark"]; len(mark) != 1 || mark[0] != value(prime, "Idempotency-Key") {
			return found("the reader acted again: it read the mark %q, and Weir took it for the first request's", mark), true, nil
		}
		return nil, true, nil
	}
	for _, p := range probes(a) {
		if p.listed {
			return found("the reader read %q, which a deny list names", p.text), true, nil
		}
		counted, status, err := j.counted(p)
		if err != nil {
			return nil, true, err
		}
		// What nobody can ask for plainly was counted all the same if Weir says so.
		if !counted && (status != http.StatusBadRequest || !slices.Equal(a.read["counted"], []string{p.text})) {
			return found("the reader read %q, and a plain request for that got %d after it", p.text, status), true, nil
		}
	}
	return nil, true, nil
}

// counted reports whether one of the plain requests for what was read is refused,
// and which status the last of them got.
func (j judge) counted(p probe) (bool, int, error) {
	status := 0
	for _, m := range p.messages {
		a, err := send(j.weir, m)
		if err != nil {
			return false, 0, err
		}
		if status = a.status; status == http.StatusTooManyRequests {
			return true, status, nil
		}
	}
	return false, status, nil
}

// value is the first value of a field.
func value(m *message, name string) string { return m.fields[m.index(name)].value }

func joined(texts []string, normal func(string) []string) []string {
	var all []string
	for _, text := range texts {
		all = append(all, normal(text)...)
	}
	return all
}

// A probe is a plain request for what a reader read, or several ways to write it.
// One of them must be refused.
type probe struct {
	text     string
	messages []*message
	listed   bool
}

// probes are all that follow from an answer.
func probes(a answer) []probe {
	var all []probe
	ask := func(route string, texts []string, normal func(string) []string) {
		for _, text := range texts {
			for _, value := range normal(text) {
				all = append(all, probe{text, plainly(route, value), listed(route, value)})
			}
		}
	}
	switch a.route {
	case "header", "mark":
		ask(a.route, a.read["header"], digits)
	case "pay":
		if strings.EqualFold(hostname(a.read["host"]), "pay.example.com") {
			ask(a.route, a.read["header"], digits)
		}
	case "query", "form":
		ask(a.route, a.read[a.route], digits)
		ask(a.route, a.read["params"], digits)
	case "json":
		ask(a.route, a.read["json"], digits)
	case "told":
		ask(a.route, a.read["told"], digits)
	case "cookie":
		ask(a.route, a.read["cookie"], exact)
	case "users":
		ask(a.route, a.read["path"], exact)
	case "any":
		ask("any-header", a.read["header"], digits)
		ask("any-query", a.read["query"], digits)
	case "token":
		ask(a.route, a.read["authorization"], subject)
	case "cost":
		for _, text := range a.read["cost"] {
			for _, phone := range a.read["header"] {
				if n := amount(text); n > 1 {
					for _, value := range digits(phone) {
						all = append(all, probe{text, []*message{costly(value, max(11-n, 1))}, false})
					}
				}
			}
		}
	}
	return all
}

// listed reports whether the route refuses that value.
func listed(route, value string) bool {
	return value == stolen && slices.Contains([]string{"header", "query", "form", "json", "cookie"}, route)
}

// digits are the numbers that a program makes of a text when it drops all that is
// no digit: of ASCII, as \D does in most languages, or of any script once NFKC or a
// conversion has brought them to ASCII.
func digits(text string) []string {
	narrow := strings.Map(ascii, text)
	wide := strings.Map(ascii, strings.Map(western, norm.NFKC.String(text)))
	var all []string
	for _, value := range []string{narrow, wide} {
		if value != "" && !slices.Contains(all, value) {
			all = append(all, value)
		}
	}
	return all
}

func ascii(r rune) rune {
	if r < '0' || r > '9' {
		return -1
	}
	return r
}

// western is the ASCII digit for one of another script. Each script's ten are in a
// row, and the rows of unicode.Nd begin with a zero.
func western(r rune) rune {
	if !unicode.Is(unicode.Nd, r) {
		return r
	}
	zero := r
	for n := 0; n < 9 && unicode.Is(unicode.Nd, zero-1); n++ {
		zero--
	}
	return '0' + (r - zero)
}

func exact(text string) []string {
	if text == "" {
		return nil
	}
	return []string{text}
}

func hostname(hosts []string) string {
	if len(hosts) == 0 {
		return ""
	}
	host := strings.TrimSpace(hosts[0])
	if i := strings.LastIndexByte(host, ':'); i >= 0 {
		host = host[:i]
	}
	return strings.TrimSuffix(host, ".")
}

// blank is what programs take for one in a header field: those that read it as
// Latin-1 take some of its upper half.
const blank = `[\s\v\p{Z}\x{85}]`

var (
	bearer = regexp.MustCompile(`(?i)^` + blank + `*bearer` + blank + `+([^\s,]+)`)
	last   = regexp.MustCompile(`(?i)^.*bearer ([^\s,]+)`) // as Laravel looks for it
)

// subject is the claim of a bearer token, wherever a program finds that.
func subject(text string) []string {
	for _, place := range []*regexp.Regexp{bearer, last} {
		match := place.FindStringSubmatch(text)
		if match == nil {
			continue
		}
		parts := strings.Split(match[1], ".")
		if len(parts) != 3 {
			continue
		}
		var claims struct {
			Subject string `json:"sub"`
		}
		raw, err := base64.RawURLEncoding.DecodeString(parts[1])
		if err == nil && json.Unmarshal(raw, &claims) == nil {
			return exact(claims.Subject)
		}
	}
	return nil
}

// amount is the number that a cost begins with.
func amount(text string) int {
	n := 0
	fmt.Sscanf(strings.TrimSpace(text), "%d", &n)
	return n
}

// plainly are all plain requests for a value: where a reader leaves escapes as they
// are, or takes bytes for Latin-1, it is not the same text that has to be sent.
func plainly(route, value string) []*message {
	value = raw(value)
	all := []*message{plain(route, value)}
	if route != "cookie" && route != "users" {
		return all
	}
	if escaped := url.PathEscape(value); route == "cookie" && escaped != value {
		m := plain(route, escaped)
		all = append([]*message{m}, all...)
	}
	if narrow, ok := latin1(value); ok && narrow != value {
		all = append(all, plain(route, narrow))
	}
	return all
}

// raw undoes what readers do with bytes that are no UTF-8: they say U+E000 and more.
func raw(text string) string {
	var b strings.Builder
	for _, r := range text {
		if r >= 0xe080 && r <= 0xe0ff {
			b.WriteByte(byte(r))
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// latin1 are the bytes of a text that was read as Latin-1.
func latin1(text string) (string, bool) {
	var b []byte
	for _, r := range text {
		if r > 0xff {
			return "", false
		}
		b = append(b, byte(r))
	}
	return string(b), true
}

// plain is the request that everybody reads in one way.
func plain(route, value string) *message {
	switch route {
	case "query":
		return request("GET", "/v1/query?phone_no="+url.QueryEscape(value))
	case "any-query":
		return request("GET", "/v1/any?phone_no="+url.QueryEscape(value))
	case "any-header":
		m := request("GET", "/v1/any")
		m.add("X-Phone", value)
		return m
	case "form":
		m := request("POST", "/v1/form")
		m.form("application/x-www-form-urlencoded", "phone_no="+url.QueryEscape(value))
		return m
	case "json":
		m := request("POST", "/v1/json")
		text, _ := json.Marshal(map[string]string{"phone_no": value})
		m.form("application/json", string(text))
		return m
	case "cookie":
		m := request("POST", "/v1/cookie")
		m.add("Cookie", "phone_no="+value)
		return m
	case "users":
		return request("GET", "/v1/users/"+url.PathEscape(value))
	case "token":
		m := request("GET", "/v1/token")
		m.add("Authorization", "Bearer "+signed(value))
		return m
	case "cost":
		return costly(value, 10)
	}
	m := request("POST", "/v1/"+route)
	if route == "told" && strings.HasPrefix(value, "86") {
		value = "+" + value
	}
	if route == "pay" {
		m.host = "pay.example.com"
		m.set("Host", m.host)
	}
	m.add("X-Phone", value)
	return m
}

func costly(value string, n int) *message {
	m := request("GET", fmt.Sprint("/v1/cost?cost_no=", n))
	m.add("X-Phone", value)
	return m
}
