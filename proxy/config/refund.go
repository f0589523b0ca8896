package config

import (
	"net/http"

	"github.com/weir-proxy/weir/proxy/config/internal/form"

	"golang.org/x/net/http/httpguts"
)

// A Fault is a kind of failure of an upstream.
type Fault string

// The faults.
const (
	FaultTimeout     Fault = "timeout"      // no response or no connection in time
	FaultConnect     Fault = "connect"      // the connection failed
	FaultReset       Fault = "reset"        // it closed the connection before the response
	FaultCut         Fault = "cut"          // the response was incomplete
	FaultBadResponse Fault = "bad_response" // the response was not valid HTTP
)

// A Refund selects the outcomes after which the permits of a request are refunded. The zero
// Refund selects none.
type Refund struct {
	Status Statuses // of the upstream's answer
	Errors []Fault
	Header string // canonical name of a field of the upstream's response; may be empty
}

// refund compiles the Refund of a route.
func (r *routes) refund(f *refundForm) Refund {
	if f == nil {
		return Refund{}
	}
	if r.Given(&f.Status) && len(f.Status) == 0 && r.Valid(&f.Status) {
		r.Wrong(&f.Status, "no status is given", "write for example [5xx], or leave it out")
	}
	if !r.Given(&f.Status) && !r.Given(&f.Errors) && !r.Given(&f.Header) && r.Valid(f) {
		r.Wrong(f, "says nothing", "write status, errors or header below it")
	}
	if f.Header != "" && !httpguts.ValidHeaderFieldName(f.Header) {
		r.Wrong(&f.Header, form.Quote(f.Header)+" is not the name of a header", "write for example X-Refund")
	}
	made := Refund{Status: f.Status.statuses(), Header: http.CanonicalHeaderKey(f.Header)}
	for _, e := range f.Errors {
		made.Errors = append(made.Errors, Fault(e))
	}
	return made
}

// count compiles the statuses after which a request stays counted; nil means all outcomes.
func (l *limits) count(f *countForm) *Statuses {
	if f == nil {
		return nil
	}
	if len(f.Status) == 0 && l.Valid(f) {
		l.Wrong(f, "no status is given", "write for example {status: [4xx]}, or leave count out for all")
	}
	s := f.Status.statuses()
	return &s
}
