package config

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/weir-proxy/weir/proxy/config/internal/form"
)

// A LogFormat is a format of the access log.
type LogFormat string

// The formats.
const (
	LogJSON     LogFormat = "json"
	LogCombined LogFormat = "combined" // NCSA combined format, as in Apache and nginx
	LogNone     LogFormat = "none"
)

// accessLog compiles the access log.
func (l *loader) accessLog(f *AccessLog) AccessLog {
	a := *f
	a.File = l.writes(&f.File)
	if len(a.Fields) == 0 {
		a.Fields = []string{"standard"}
	}
	for i, name := range f.Fields {
		if slices.Contains(f.Fields[:i], name) {
			l.Wrong(&f.Fields[i], form.Quote(name)+" is given twice", "keep one")
		}
	}
	if !l.Valid(&f.Format) {
		return a
	}
	l.refuse([]finding{
		{a.Format != LogJSON && len(f.Fields) > 0, &f.Fields, "only lines of JSON have fields to choose", "write format: json, or leave it out"},
		{a.Format == LogNone && f.File != "", &f.File, "nothing is written to it", "write format: json, or leave it out"},
	})
	return a
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
func (l *loader) traces(f *Traces) Traces {
	t := *f
	t.Fields, t.Share = nil, ""
	percent, is := strings.CutSuffix(f.Share, "%")
	share, err := strconv.ParseFloat(percent, 64)
	if f.Share != "" && (!is || err != nil || share < 0 || share > 100 || strings.Trim(percent, "0123456789.") != "") {
		l.Wrong(&f.Share, form.Quote(f.Share)+" is not a percentage", "write 0% to 100%, for example 0.1%")
	}
	t.Sample = share / 100
	for name, value := range f.Fields {
		if !httpguts.ValidHeaderFieldName(name) {
			l.Wrong(form.Entry{Of: &f.Fields, Name: name}, form.Quote(name)+" is not a header that can be sent", "write for example Authorization: \"Bearer ${TRACES_TOKEN}\"")
			continue
		}
		if t.Headers == nil {
			t.Headers = map[string]string{}
		}
		t.Headers[http.CanonicalHeaderKey(name)] = value
	}
	if f.Endpoint != "" {
		t.Endpoint = l.collector(f)
	}
	return t
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
