package config

import (
	"net/http"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config/internal/form"
	"golang.org/x/net/http/httpguts"
)

// An Idempotency lets clients repeat a request without being counted again.
type Idempotency struct {
	Header  string        // canonical name of the field with the idempotency key
	Life    time.Duration // how long a request is remembered
	Repeats int64         // number of repeats that are not counted, at least 1
}

func (r *routes) idempotency(f *idempotencyForm) *Idempotency {
	if f == nil {
		return nil
	}
	if f.Header != "" && !httpguts.ValidHeaderFieldName(f.Header) {
		r.Wrong(&f.Header, form.Quote(f.Header)+" is not the name of a header", "write for example Idempotency-Key")
	}
	if time.Duration(f.Life) > limiter.MaxWindow {
		r.Wrong(&f.Life, "is longer than can be remembered", "write at most 366d")
	}
	return &Idempotency{Header: http.CanonicalHeaderKey(f.Header), Life: time.Duration(f.Life), Repeats: int64(f.Repeats)}
}
