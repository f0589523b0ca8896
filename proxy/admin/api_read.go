package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/weir-proxy/weir/proxy/config"
)

const (
	// maxRequest is how long a request with a bundle may be, in bytes: JSON escapes
	// what is in the files.
	maxRequest = 2*config.MaxBundle + 1<<20
	// maxQuestion is how long another may be: one to be explained has a body in it.
	maxQuestion = 4 << 20
)

// A boundedBody says how long a body may be, where that is another bound than
// maxQuestion.
type boundedBody struct {
	io.ReadCloser
	max int64
}

// bounded is r with another bound for its body.
func bounded(r *http.Request, most int64) *http.Request {
	r.Body = boundedBody{r.Body, most}
	return r
}

// read decodes what a request says, one value of JSON with no field that is not known; it
// has answered when that cannot be understood.
func read[T any](w http.ResponseWriter, r *http.Request, v *T) bool {
	most := int64(maxQuestion)
	if b, ok := r.Body.(boundedBody); ok {
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
