package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/weir-proxy/weir/proxy/config/bundle"
)

const (
	// maxBundleBody is the maximum length of a request with a bundle in bytes. JSON escapes the
	// content of the files.
	maxBundleBody = 2*bundle.MaxSize + 1<<20
	// maxBody is the maximum length of other requests: those to explain contain a body.
	maxBody = 4 << 20
)

// A maxBodyKey is the context key of a limit for the request body other than maxBody.
type maxBodyKey struct {
	io.ReadCloser
	max int64
}

// withMaxBody returns r with another limit for its body.
func withMaxBody(r *http.Request, most int64) *http.Request {
	r.Body = maxBodyKey{r.Body, most}
	return r
}

// read decodes the body of a request, one JSON value without unknown fields. If that fails, it
// sends the error response and returns false.
func read[T any](w http.ResponseWriter, r *http.Request, v *T) bool {
	most := int64(maxBody)
	if b, ok := r.Body.(maxBodyKey); ok {
		most = b.max
	}
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, most))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(v)
	if err == nil {
		if _, more := decoder.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("trailing data after the JSON value")
		}
	}
	var long *http.MaxBytesError
	switch {
	case errors.As(err, &long):
		problem(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("longer than %d bytes", most))
	case errors.Is(err, io.EOF):
		problem(w, http.StatusBadRequest, "there is no body; send JSON, as GET "+apiRoot+"/openapi.json tells")
	case err != nil:
		problem(w, http.StatusBadRequest, "not understood: "+err.Error())
	}
	return err == nil
}
