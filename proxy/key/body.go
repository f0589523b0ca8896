package key

import (
	"fmt"
	"mime"
	"strings"
)

// decodedBody returns the body of a request with one Content-Type and no content coding.
func decodedBody(r Request, m Message) (Body, error) {
	body, err := m.Body()
	if err != nil || len(body.Bytes) == 0 {
		return Body{}, err
	}
	if len(r.Header("Content-Type")) > 1 {
		return Body{}, fmt.Errorf("%w: Content-Type", ErrAmbiguous)
	}
	for _, encoding := range r.Header("Content-Encoding") {
		if encoding != "" && !strings.EqualFold(encoding, "identity") {
			return Body{}, fmt.Errorf("%w: the body is encoded; send it without Content-Encoding", ErrAmbiguous)
		}
	}
	return body, nil
}

// media returns the media type of the body. A malformed one is ErrAmbiguous, because some
// servers parse only its beginning. So is a charset other than UTF-8, because keys are read
// as UTF-8.
func (b Body) media() (string, error) {
	if b.Type == "" {
		return "", fmt.Errorf("%w: Content-Type is missing", ErrInvalid)
	}
	kind, parameters, err := mime.ParseMediaType(b.Type)
	if err != nil {
		return "", fmt.Errorf("%w: Content-Type is malformed", ErrAmbiguous)
	}
	if charset, ok := parameters["charset"]; ok && !strings.EqualFold(charset, "utf-8") {
		return "", fmt.Errorf("%w: the charset of Content-Type is not UTF-8", ErrAmbiguous)
	}
	return kind, nil
}

// json returns an error unless the media type is JSON.
func (b Body) json() error {
	if b.Type == "application/json" {
		return nil
	}
	kind, err := b.media()
	if err != nil {
		return err
	}
	if kind != "application/json" && !(strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "+json")) {
		return fmt.Errorf("%w: Content-Type is not application/json", ErrInvalid)
	}
	return nil
}
