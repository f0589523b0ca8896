package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config/internal/form"
	"github.com/weir-proxy/weir/proxy/key"
)

var (
	// braces matches placeholders in plain text, and everything that looks like one.
	braces = regexp.MustCompile(`\{[^{}]*\}|[{}]`)
	// words matches placeholders in texts with other braces, such as JSON.
	words = regexp.MustCompile(`\{[A-Za-z][A-Za-z0-9_]*\}`)
	// jsonBegins and htmlBegins match bodies of these types, whatever placeholders they have.
	jsonBegins = regexp.MustCompile(`^\s*(\{\s*("|\}\s*$)|\[\s*(["{]|\]\s*$))`)
	htmlBegins = regexp.MustCompile(`(?i)^\s*<(!doctype\s+html|html)[\s>]`)
)

func (r *routes) reject(f *Reject) Reject {
	made := r.texts(f, "{retry_after}", "{limit}", "{request_id}")
	made.Status = f.Status
	return made
}

// texts compiles the texts of f, a pointer to a Reject or an ErrorText, which may have these placeholders.
func (l *loader) texts(f any, placeholders ...string) Reject {
	field := func(name string) *string { return form.Field(f, name).(*string) }
	detail, body, contentType, headers := field("detail"), field("body"), field("content_type"), form.Field(f, "headers").(*map[string]string)
	l.placeholders(placeholders, detail, *detail, braces)
	l.refuse([]finding{{*body == "" && l.Given(contentType), contentType, "there is no body", "write body: beside it, or leave it out"}})
	made := Reject{Detail: *detail, Body: *body}
	if made.Body != "" {
		made.ContentType = cmp.Or(*contentType, "text/plain; charset=utf-8")
	}
	l.placeholders(placeholders, body, *body, words)
	l.warnPlain(contentType, body)
	kind := l.mediaType(contentType)
	isJSON := kind == "application/json" || strings.HasSuffix(kind, "+json")
	sample := strings.NewReplacer("{retry_after}", "1", "{limit}", "a", "{request_id}", "a", "{status}", "400").Replace(made.Body)
	l.refuse([]finding{
		{made.Body != "" && isJSON && !json.Valid([]byte(sample)) && l.Valid(body), body,
			"is not JSON, as its content_type says", `put {limit} and {request_id} in quotes, as in {"limit":"{limit}","after":{retry_after}}`},
	})
	placeholders = append(placeholders, "{origin}") // which stands in no text for people
	for _, name := range form.SortedKeys(*headers) {
		l.placeholders(placeholders, form.Entry{Of: headers, Name: name}, (*headers)[name], braces)
	}
	made.Headers = l.headers(headers, "X-Reason", reserved{names: ownFields()})
	return made
}

// warnPlain warns of a body in JSON or HTML that is sent as plain text.
func (l *loader) warnPlain(contentType, body *string) {
	plain := !l.Given(contentType)
	l.warn([]finding{
		{plain && jsonBegins.MatchString(*body), body, "is JSON, and sent as text/plain", "write content_type: application/json beside it"},
		{plain && htmlBegins.MatchString(*body), body, "is HTML, and sent as text/plain", `write content_type: "text/html; charset=utf-8" beside it`},
	})
}

// placeholders checks that all placeholders in a text exist.
func (l *loader) placeholders(known []string, pointer any, text string, allowed *regexp.Regexp) {
	for _, m := range allowed.FindAllString(text, -1) {
		if !slices.Contains(known, m) {
			last := len(known) - 1
			l.Wrong(pointer, form.Quote(m)+" is not a placeholder", "write {retry_after} for the seconds to wait, "+strings.Join(known[1:last], ", ")+" or "+known[last]+", and no other braces")
		}
	}
}

// mediaType returns a media type without its parameters; it may be empty.
func (l *loader) mediaType(text *string) string {
	kind, _, err := mime.ParseMediaType(*text)
	if *text != "" && (err != nil || !strings.Contains(kind, "/")) {
		l.Wrong(text, form.Quote(*text)+" is not a media type", "write for example application/json")
	}
	return kind
}

// ownFields returns fields that are set in every refusal, or that belong to the connection.
func ownFields() []string {
	return []string{
		"Cache-Control", "Connection", "Content-Length", "Content-Type", "Date", "Keep-Alive", "Ratelimit", "Ratelimit-Policy", "Retry-After",
		"Te", "Trailer", "Transfer-Encoding", "Upgrade", "X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset", "X-Request-Id",
	}
}

func (r *routes) respond(f *Respond) *Respond {
	if f.Body != "" && slices.Contains([]int{http.StatusNoContent, http.StatusResetContent, http.StatusNotModified}, f.Status) {
		r.Wrong(&f.Body, "an answer with this status has no body", "leave it out, or write another status")
	}
	r.mediaType(&f.ContentType)
	r.warnPlain(&f.ContentType, &f.Body)
	fields := reserved{names: append(connectionFields(), "Date"), elsewhere: map[string]fault{"Content-Type": {"Content-Type has a field of its own", "write content_type: beside headers:"}}}
	return &Respond{f.Status, f.Body, f.ContentType, r.headers(&f.Headers, "X-App", fields)}
}

// A template is the parsed name of Redisson limiters.
type template struct {
	name       string
	start, end string // text around {key}; without {key}, the name is start
	keyed      bool
	digits     bool // the key is a number, perhaps with a plus before it
	form       limiter.RedissonFormat
}

func newTemplate(f, limit *Limit) template {
	t := template{name: f.RedissonName, form: limit.RedissonFormat}
	t.start, t.end, t.keyed = strings.Cut(f.RedissonName, "{key}")
	steps := limit.Key.Normalize
	t.digits = limit.Key.OnMissing != key.Use && limit.Key.OnInvalid != key.Use && len(steps) > 0 && slices.Contains([]key.Step{key.Digits, key.E164}, steps[len(steps)-1])
	return t
}

// accepts reports whether text can be part of a key.
func (t template) accepts(text string) bool {
	return t.keyed && !strings.ContainsAny(text, "{}") && (!t.digits || strings.Trim(text, "+0123456789") == "")
}

// overlaps reports whether t and other can result in the same name.
func (t template) overlaps(other template) bool {
	if !t.keyed {
		t, other = other, t
	}
	if !t.keyed {
		return t.start == other.start
	}
	if !other.keyed {
		text, ok := strings.CutPrefix(other.start, t.start)
		text, end := strings.CutSuffix(text, t.end)
		return ok && end && t.accepts(text)
	}
	return t.covers(other, t.start, other.start, strings.CutPrefix) && t.covers(other, t.end, other.end, strings.CutSuffix)
}

// covers reports whether the names of both can begin, or end, in the same way, of which own and their are the texts: what
// the longer one has in addition is then a part of the other's key.
func (t template) covers(other template, own, their string, cut func(text, less string) (string, bool)) bool {
	if len(own) > len(their) {
		t, own, their = other, their, own
	}
	more, ok := cut(their, own)
	return ok && t.accepts(more)
}

// Statuses is a set of HTTP statuses, as it is written: one or several. The zero Statuses is empty.
type Statuses []code

// A code is 404, 5xx or 500-503: the statuses from one to another.
type code struct {
	text     string // as it is written
	from, to int
}

// codeForm is what a code looks like.
var codeForm = regexp.MustCompile(`^(?:([1-5])xx|([1-5][0-9][0-9])(?:-([1-5][0-9][0-9]))?)$`)

// Parse is form.Text.
func (c *code) Parse(text string) error {
	if !codeForm.MatchString(text) {
		return fmt.Errorf("%s is not a status", form.Quote(text))
	}
	first, last, _ := strings.Cut(text, "-")
	c.text = text
	c.from, _ = strconv.Atoi(strings.ReplaceAll(first, "x", "0"))
	c.to, _ = strconv.Atoi(strings.ReplaceAll(cmp.Or(last, first), "x", "9"))
	if c.to < c.from {
		return fmt.Errorf("%s ends before it begins", form.Quote(text))
	}
	return nil
}

// Wanted is form.Text.
func (*code) Wanted() (kind, instead string) {
	return "a status", "write for example 404, 5xx or 500-503"
}

// Written is form.Text.
func (c *code) Written() any { return c.text }

// Has reports whether status is one of s.
func (s Statuses) Has(status int) bool {
	return slices.ContainsFunc(s, func(c code) bool { return c.from <= status && status <= c.to })
}

// orSuccess returns s, or 2xx if it is empty.
func (s Statuses) orSuccess() Statuses {
	if len(s) == 0 {
		return Statuses{{from: 200, to: 299}}
	}
	return s
}

// Ranges returns the statuses of s in the notation of the file: 2xx, 404, 500-503.
func (s Statuses) Ranges() (all []string) {
	for from := 100; from < 600; from++ {
		end := from
		for s.Has(end) {
			end++
		}
		switch {
		case end == from:
			continue
		case from%100 == 0 && end >= from+100:
			end = from + 100
			all = append(all, strconv.Itoa(from/100)+"xx")
		case end == from+1:
			all = append(all, strconv.Itoa(from))
		default:
			all = append(all, strconv.Itoa(from)+"-"+strconv.Itoa(end-1))
		}
		from = end - 1
	}
	return all
}

const (
	// tokenField is where the token of a challenge is read from where the file does not say.
	tokenField = "header:X-Challenge-Token" // #nosec G101 -- the name of a field
	// tokenAge is how old a token may be where the file does not say.
	tokenAge = 5 * time.Minute
	// longestToken bounds the age of a token: the store remembers for about as long that it was used.
	longestToken = 24 * time.Hour
)

// stepUp compiles step_up of a limit.
func (l *limits) stepUp(f, limit *Limit) {
	if f.StepUp == nil {
		return
	}
	s := &StepUp{Challenge: cmp.Or(f.StepUp.Challenge, limit.Name), Algorithm: limit.Algorithm}
	if a := limit.Algorithm; a.HasValues() || a.HasSteps() || a.HasConversion() { // which are no rates of requests
		s.Algorithm, _ = limiter.ParseAlgorithm("sliding_log")
	}
	l.token(&f.StepUp.Challenge, f.StepUp.Challenge)
	s.Rates = l.rates(f.StepUp, limit, "write rate: COUNT/WINDOW, for example 100/1d: the rate of requests that pass by step_up")
	for _, rate := range s.Rates {
		if limit.Cost != nil && limit.Cost.Max > rate.Count {
			l.Wrong(f.StepUp, "a request may cost more than "+rate.String()+" holds", "write a rate of at least "+strconv.FormatInt(limit.Cost.Max, 10)+", or a smaller max_cost")
		}
	}
	l.challenged(f.StepUp, limit, s)
	limit.StepUp = s
}

// challenged compiles a step_up by which the client needs a token.
func (l *limits) challenged(f *StepUp, limit *Limit, s *StepUp) {
	from, err := key.ParseOrigin(cmp.Or(f.Token, tokenField))
	if err != nil || !from.Source.IsField() {
		l.Wrong(&f.Token, form.Quote(f.Token)+" is not a header field", "write for example "+tokenField)
	} else {
		s.Header = from.Name
		l.ownField(&f.Token, s.Header)
	}
	s.Tokens, s.MaxAge = l.keys.tokens, cmp.Or(f.MaxAge, tokenAge)
	l.keys.signed = l.keys.signed || f.JWT == nil
	if f.JWT != nil {
		s.Tokens = l.tokens(f.JWT)
	}
	l.refuse([]finding{
		{f.JWT == nil && l.main.JWT == nil, f, "there are no keys to verify tokens with", "write jwt: {secret: \"${WEIR_CHALLENGE_SECRET:-}\"} below it, or a section jwt for all tokens"},
		{s.MaxAge > longestToken, &f.MaxAge, "is longer than a token may be valid", "write at most 1d"},
		{s.Tokens.Leeway() > longestToken, f, "the leeway of its jwt is longer than a token may be valid", "write at most 1d there"},
	})
	l.boundTo(f, limit, s)
}

// boundTo compiles the key whose value a token has.
func (l *limits) boundTo(f *StepUp, limit *Limit, s *StepUp) {
	pointer := any(f)
	s.Key = cmp.Or(limit.Subject(), limit.Key)
	if f.Of != nil {
		pointer, s.Key = f.Of, l.keys.use(f.Of)
		l.parameters(f.Of, s.Key)
	}
	if s.Key == nil {
		return // already reported
	}
	l.refuseFirst([]finding{
		{s.Key.Join != nil, pointer, "the key " + s.Key.Name + " is joined of several, which the claim sub of a token cannot hold", "write key: below step_up, with a key that is not joined"},
		{s.Key.From.Source.IsConstant(), pointer, "the key " + s.Key.Name + " is the same for everybody, so that anybody could use a token", "write key: below step_up, with a key that tells clients apart"},
	})
}

// ownField checks that a field of requests has no other meaning: Weir removes it from what clients send.
func (l *limits) ownField(pointer *string, name string) {
	reserved := requestFields()
	if !httpguts.ValidTrailerHeader(name) || reserved.has(name) || name == reserved.kept || name == "Cookie" || strings.HasPrefix(name, "Content-") {
		l.Wrong(pointer, name+" has another meaning, and would not reach the upstream", "write for example "+tokenField)
	}
}
