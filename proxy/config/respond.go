package config

import (
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/weir-proxy/weir/proxy/config/internal/form"

	"golang.org/x/net/http/httpguts"
)

func (r *routes) respond(f *respondForm) *Respond {
	if f == nil {
		return nil
	}
	if f.Body != "" && slices.Contains([]int{http.StatusNoContent, http.StatusResetContent, http.StatusNotModified}, f.Status) {
		r.Wrong(&f.Body, "an answer with this status has no body", "leave it out, or write another status")
	}
	if kind, _, err := mime.ParseMediaType(f.ContentType); f.ContentType != "" && (err != nil || !strings.Contains(kind, "/")) {
		r.Wrong(&f.ContentType, form.Quote(f.ContentType)+" is not a media type", "write for example application/json")
	}
	if !r.Given(&f.ContentType) {
		r.warnPlain(&f.Body)
	}
	made := &Respond{Status: f.Status, Body: f.Body, ContentType: f.ContentType}
	for _, name := range form.SortedKeys(f.Headers) {
		value := f.Headers[name]
		canonical := http.CanonicalHeaderKey(name)
		_, doubled := made.Headers[canonical]
		switch {
		case !httpguts.ValidHeaderFieldName(name):
			r.WrongName(value, form.Quote(name)+" is not the name of a header", "write for example X-App")
		case canonical == "Content-Type":
			r.WrongName(value, "Content-Type has a field of its own", "write content_type: beside headers:")
		case responseFields().has(canonical) || canonical == "Date":
			r.WrongName(value, canonical+" is set by Weir itself", "leave it out")
		case doubled:
			r.WrongName(value, canonical+" is given twice, in another spelling", "keep one")
		case !httpguts.ValidHeaderFieldValue(*value):
			r.Wrong(value, "cannot be sent in a header", "write plain characters")
		}
		if made.Headers == nil {
			made.Headers = map[string]string{}
		}
		made.Headers[canonical] = *value
	}
	return made
}

// Respond is a fixed response.
type Respond struct {
	Status      int // 200 to 599
	Body        string
	ContentType string            // of the body, if there is one
	Headers     map[string]string // by canonical name
}
