package config

import (
	"cmp"
	"encoding/json"
	"mime"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/weir-proxy/weir/proxy/config/internal/form"

	"golang.org/x/net/http/httpguts"
)

// A Reject is the response to a request refused by a limit. Detail, Body and the values of
// Headers may contain the placeholders {retry_after}, {limit} and {request_id}, the values of Headers also {origin}.
type Reject struct {
	Status      int               // 400 to 599
	Detail      string            // detail of the problem document, if Body is empty
	Headers     map[string]string // by canonical name; never one that Weir sets itself
	Body        string            // instead of a problem document; may be empty
	ContentType string            // of Body
}

var (
	// braces matches placeholders in plain text, and everything that looks like one.
	braces = regexp.MustCompile(`\{[^{}]*\}|[{}]`)
	// words matches placeholders in texts with other braces, such as JSON.
	words = regexp.MustCompile(`\{[A-Za-z][A-Za-z0-9_]*\}`)
	// jsonBegins and htmlBegins match bodies of these types, whatever placeholders they have.
	jsonBegins = regexp.MustCompile(`^\s*(\{\s*("|\}\s*$)|\[\s*(["{]|\]\s*$))`)
	htmlBegins = regexp.MustCompile(`(?i)^\s*<(!doctype\s+html|html)[\s>]`)
)

func (r *routes) reject(f *rejectForm) Reject {
	made := r.texts(texts{&f.Detail, &f.Body, &f.ContentType, f.Headers, []string{"{retry_after}", "{limit}", "{request_id}"}})
	made.Status = f.Status
	return made
}

// texts are the fields of a response with placeholders.
type texts struct {
	detail, body, contentType *string
	headers                   map[string]*string
	placeholders              []string // those that it may have
}

// texts compiles the texts of a response.
func (l *loader) texts(t texts) Reject {
	l.placeholders(t, t.detail, braces)
	if *t.body == "" && l.Given(t.contentType) {
		l.Wrong(t.contentType, "there is no body", "write body: beside it, or leave it out")
	}
	made := Reject{Detail: *t.detail, Body: *t.body}
	if made.Body != "" {
		made.ContentType = cmp.Or(*t.contentType, "text/plain; charset=utf-8")
	}
	l.placeholders(t, t.body, words)
	if !l.Given(t.contentType) {
		l.warnPlain(t.body)
	}
	kind, _, err := mime.ParseMediaType(cmp.Or(*t.contentType, "text/plain"))
	switch {
	case err != nil || !strings.Contains(kind, "/"):
		l.Wrong(t.contentType, form.Quote(*t.contentType)+" is not a media type", "write for example application/json")
	case made.Body != "" && jsonType(kind):
		sample := strings.NewReplacer("{retry_after}", "1", "{limit}", "a", "{request_id}", "a", "{status}", "400").Replace(made.Body)
		if !json.Valid([]byte(sample)) && l.Valid(t.body) {
			l.Wrong(t.body, "is not JSON, as its content_type says", `put {limit} and {request_id} in quotes, as in {"limit":"{limit}","after":{retry_after}}`)
		}
	}
	t.placeholders = append(t.placeholders, "{origin}") // which stands in no text for people
	for _, name := range form.SortedKeys(t.headers) {
		value := t.headers[name]
		canonical := http.CanonicalHeaderKey(name)
		_, doubled := made.Headers[canonical]
		switch {
		case !httpguts.ValidHeaderFieldName(name):
			l.WrongName(value, form.Quote(name)+" is not the name of a header", "write for example X-Reason")
		case slices.Contains(ownFields(), canonical):
			l.WrongName(value, canonical+" is set by Weir itself", "leave it out")
		case doubled:
			l.WrongName(value, canonical+" is given twice, in another spelling", "keep one")
		case !httpguts.ValidHeaderFieldValue(*value):
			l.Wrong(value, "cannot be sent in a header", "write plain characters")
		}
		l.placeholders(t, value, braces)
		if made.Headers == nil {
			made.Headers = map[string]string{}
		}
		made.Headers[canonical] = *value
	}
	return made
}

// warnPlain warns of a body in JSON or HTML that is sent as plain text.
func (l *loader) warnPlain(body *string) {
	switch {
	case jsonBegins.MatchString(*body):
		l.Warn(body, "is JSON, and sent as text/plain", "write content_type: application/json beside it")
	case htmlBegins.MatchString(*body):
		l.Warn(body, "is HTML, and sent as text/plain", `write content_type: "text/html; charset=utf-8" beside it`)
	}
}

// placeholders checks that all placeholders in a text exist.
func (l *loader) placeholders(t texts, text *string, allowed *regexp.Regexp) {
	for _, m := range allowed.FindAllString(*text, -1) {
		if !slices.Contains(t.placeholders, m) {
			last := len(t.placeholders) - 1
			l.Wrong(text, form.Quote(m)+" is not a placeholder", "write {retry_after} for the seconds to wait, "+strings.Join(t.placeholders[1:last], ", ")+" or "+t.placeholders[last]+", and no other braces")
		}
	}
}

// jsonType reports whether a media type, without parameters, is JSON.
func jsonType(kind string) bool {
	return kind == "application/json" || strings.HasSuffix(kind, "+json")
}

// ownFields returns fields that are set in every refusal, or that belong to the connection.
func ownFields() []string {
	return []string{
		"Cache-Control", "Connection", "Content-Length", "Content-Type", "Date", "Keep-Alive", "Ratelimit", "Ratelimit-Policy", "Retry-After",
		"Te", "Trailer", "Transfer-Encoding", "Upgrade", "X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset", "X-Request-Id",
	}
}
