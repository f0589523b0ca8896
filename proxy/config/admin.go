package config

import (
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/weir-proxy/weir/proxy/config/internal/form"
)

// admin compiles the admin listener.
func (l *loader) admin(f, made *Admin) {
	made.HTTPS, made.ClientCA = unlessNone(f.HTTPS), l.clientCA(f)
	made.Operators, made.Tokens = nil, l.operators(f)
	for i, name := range f.Hosts { // that clients may use
		if name != "" && !form.IsHost(name) {
			l.Wrong(&f.Hosts[i], form.Quote(name)+" is not a valid host name", "write for example weir.internal, without a port")
		}
	}
}

// clientCA loads the authorities for client certificates.
func (l *loader) clientCA(f *Admin) string {
	plain, isGiven := parseAddress(f.HTTP), f.ClientCA != ""
	l.refuse([]finding{
		{isGiven && unlessNone(f.HTTPS) == "" && l.Valid(&f.HTTPS), &f.ClientCA, "no client certificate is requested, because there is no admin.https", "write https: HOST:PORT beside it"},
		{isGiven && l.Valid(&f.HTTP) && plain.port != "" && !plain.loopback(), &f.ClientCA, "admin.http is reached from the network without a certificate", "let admin.http listen on 127.0.0.1"},
	})
	data, _ := l.authorities(&f.ClientCA)
	return data
}

// leastToken is the minimum length of a token that is used over the network.
const leastToken = 16

// requireToken checks that an address of the admin listener that other machines can reach
// requires a token of sufficient length.
func (l *loader) requireToken(at *string, a address, f *Admin) {
	token := &f.Token
	open := a.port != "" && !a.loopback() && l.Valid(token)
	// The length of the tokens of individual operators is checked separately.
	own := slices.ContainsFunc(f.Operators, func(t *Token) bool { return t.Text != "" })
	l.refuse([]finding{
		{open && *token == "" && !own, at, "anyone on the network could use the admin listener", `set admin.token, for example "${WEIR_ADMIN_TOKEN}", or listen on 127.0.0.1`},
		{open && *token != "" && len(*token) < leastToken, token, "is short enough to guess by others on the network", "use 16 characters or more, made at random, or listen on 127.0.0.1"},
	})
}

// operators returns the tokens of individual operators, without empty ones.
func (l *loader) operators(f *Admin) []Token {
	var all []Token
	for _, t := range f.Operators {
		if !l.Valid(&t.Name) || !l.Valid(&t.Text) || !l.Valid(&t.Role) {
			continue
		}
		l.refuseFirst([]finding{
			{!tokenSafe.MatchString(t.Name), &t.Name, form.Quote(t.Name) + " is not a valid name", "write letters, digits, _, . and -, a letter first"},
			{t.Name == "admin" || t.Name == "local", &t.Name, form.Quote(t.Name) + " is what the audit trail calls who uses admin.token, or none", "choose another name"},
			{slices.ContainsFunc(all, func(o Token) bool { return o.Name == t.Name }), &t.Name, form.Quote(t.Name) + " is already used", "give each operator a name and a token of its own"},
		})
		if t.Text == "" {
			continue
		}
		l.refuseFirst([]finding{
			{len(t.Text) < leastToken, &t.Text, "is short enough to guess", "use 16 characters or more, made at random"},
			{t.Text == f.Token || slices.ContainsFunc(all, func(o Token) bool { return o.Text == t.Text }), &t.Text, "is also the token of another operator", "give each operator a token of its own"},
		})
		all = append(all, Token{Name: t.Name, Text: t.Text, Write: t.Role == "write"})
	}
	return all
}

// alerts compiles the alerts section.
func (l *loader) alerts(f, made *Alerts) {
	made.Parts, made.Returned, made.Conversion = nil, "", l.percentage(&f.Returned, 99, ", for example 35%")
	for i := range f.Parts {
		n := l.percentage(&f.Parts[i], 100, "")
		if n > 0 && slices.Contains(made.Used, n) {
			l.Wrong(&f.Parts[i], f.Parts[i]+" is given twice", "write it once")
		}
		made.Used = append(made.Used, n)
	}
	slices.Sort(made.Used)
	to, isURL := webURL(f.Webhook)
	l.refuse([]finding{
		{made.Repeat > 0 && made.Repeat < 2*time.Minute, &f.Repeat, "is too short, alerts look at two minutes", "write at least 2m"},
		{f.Webhook != "" && !isURL, &f.Webhook, "is not the URL of a webhook", "write for example https://hooks.example.com/weir"},
		{isURL && to.User != nil, &f.Webhook, "has a password", "leave it out: the receiver knows Weir by the signature of secret"},
	})
	l.warn([]finding{
		{f.Webhook == "" && f.Secret != "", &f.Secret, "there is no webhook that anything is sent to", "write webhook: beside it"},
		{isURL && to.User == nil && to.Scheme == "http" && !address{host: to.Hostname()}.loopback(), &f.Webhook, "alerts are sent without TLS", "write https://"},
		{isURL && f.Secret != "" && len(f.Secret) < leastToken, &f.Secret, "the secret is short enough to guess", "use 16 characters or more, made at random"},
		{isURL && f.Secret == "", &f.Webhook, "the receiver cannot tell whether an alert is from Weir", "write secret: beside it, made at random"},
	})
}

// webURL parses the URL of a server that Weir sends something to.
func webURL(text string) (to *url.URL, ok bool) {
	to, err := url.Parse(text)
	return to, err == nil && (to.Scheme == "http" || to.Scheme == "https") && to.Hostname() != ""
}

// A Threshold is a number of refusals of a limit within a minute, at least 1, and the percentage of its decisions that they
// must be as well, 0 for any; with one the number is at least 10.
type Threshold struct{ Count, Share int64 }

// leastShare is the number of refusals below which a percentage says little.
const leastShare = 10

// thresholdForm is what a threshold looks like.
var thresholdForm = regexp.MustCompile(`^(?:[1-9][0-9]{0,8}|(?:[1-9][0-9]?|100)%)$`)

// Parse is form.Text.
func (t *Threshold) Parse(text string) error {
	if !thresholdForm.MatchString(text) {
		return errors.New(form.Quote(text) + " is neither a number of requests nor a percentage")
	}
	number, isShare := strings.CutSuffix(text, "%")
	n, _ := strconv.ParseInt(number, 10, 64)
	if *t = (Threshold{Count: n}); isShare {
		*t = Threshold{leastShare, n}
	}
	return nil
}

// Wanted is form.Text.
func (*Threshold) Wanted() (kind, instead string) {
	return "a number or a percentage", "write for example 100 or 5%"
}

// Written is form.Text.
func (t *Threshold) Written() any {
	if t.Share > 0 {
		return strconv.FormatInt(t.Share, 10) + "%"
	}
	return t.Count
}

// A LogFormat is a format of the access log.
type LogFormat string

// The formats.
const (
	LogJSON     LogFormat = "json"
	LogCombined LogFormat = "combined" // NCSA combined format, as in Apache and nginx
	LogNone     LogFormat = "none"
)

// accessLog compiles the access log.
func (l *loader) accessLog(f, made *AccessLog) {
	made.File = l.writes(&f.File)
	if len(made.Fields) == 0 {
		made.Fields = []string{"standard"}
	}
	for i, name := range f.Fields {
		if slices.Contains(f.Fields[:i], name) {
			l.Wrong(&f.Fields[i], form.Quote(name)+" is given twice", "keep one")
		}
	}
	l.refuse([]finding{
		{f.Format != LogJSON && len(f.Fields) > 0 && l.Valid(&f.Format), &f.Fields, "only lines of JSON have fields to choose", "write format: json, or leave it out"},
		{f.Format == LogNone && f.File != "", &f.File, "nothing is written to it", "write format: json, or leave it out"},
	})
}

// A TraceParent determines whose traceparent is used.
type TraceParent string

// Values of TraceParent.
const (
	ParentTrusted TraceParent = "trusted" // of trusted proxies
	ParentAny     TraceParent = "any"     // of all clients
	ParentNone    TraceParent = "none"    // none
)

// traces compiles the traces section.
func (l *loader) traces(f, made *Traces) {
	made.Fields, made.Share = nil, ""
	percent, is := strings.CutSuffix(f.Share, "%")
	share, err := strconv.ParseFloat(percent, 64)
	if f.Share != "" && (!is || err != nil || share < 0 || share > 100 || strings.Trim(percent, "0123456789.") != "") {
		l.Wrong(&f.Share, form.Quote(f.Share)+" is not a percentage", "write 0% to 100%, for example 0.1%")
	}
	made.Sample = share / 100
	for name, value := range f.Fields {
		if !httpguts.ValidHeaderFieldName(name) {
			l.Wrong(form.Entry{Of: &f.Fields, Name: name}, form.Quote(name)+" is not a header that can be sent", "write for example Authorization: \"Bearer ${TRACES_TOKEN}\"")
			continue
		}
		if made.Headers == nil {
			made.Headers = map[string]string{}
		}
		made.Headers[http.CanonicalHeaderKey(name)] = value
	}
	if f.Endpoint != "" {
		made.Endpoint = l.collector(f)
	}
}

// collector checks the URL of the collector.
func (l *loader) collector(f *Traces) string {
	to, isURL := webURL(f.Endpoint)
	if l.refuseFirst([]finding{
		{!isURL || to.RawQuery != "" || to.Fragment != "", &f.Endpoint, "is not the URL of a collector", "write for example http://127.0.0.1:4318"},
		{isURL && to.User != nil, &f.Endpoint, "has a password", "write it into headers, as Authorization"},
	}) {
		return ""
	}
	isPortOfGRPC := to.Port() == "4317"
	l.warn([]finding{
		{isPortOfGRPC, &f.Endpoint, "4317 is where collectors usually speak gRPC", "write the port for HTTP, usually 4318"},
		{!isPortOfGRPC && to.Scheme == "http" && len(f.Fields) > 0 && !address{host: to.Hostname()}.loopback(), &f.Endpoint, "what headers says travels without TLS", "write https://"},
	})
	if to.Path == "" || to.Path == "/" {
		to.Path = "/v1/traces"
	}
	return to.String()
}
