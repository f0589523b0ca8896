package key

import (
	"fmt"
	"mime"
	"strings"
)

// whole is the body as its sender meant it: one Content-Type, no encoding.
func whole(r Request, m Message) (Body, error) {
	body, err := m.Body()
	if err != nil || len(body.Bytes) == 0 {
		return Body{}, err
	}
	if len(r.Header("Content-Type")) > 1 {
		return Body{}, fmt.Errorf("%w: Content-Type", ErrAmbiguous)
	}
	for _, encoding := range r.Header("Content-Encoding") {
		if encoding != "" && !strings.EqualFold(encoding, "identity") {
			return Body{}, fmt.Errorf("%w: the body is encoded; send it without Content-Encoding", ErrInvalid)
		}
	}
	return body, nil
}

// media is the type of the body and its parameters. A charset other than UTF-8
// is ErrInvalid: keys are read as UTF-8, and an upstream could read them
// otherwise.
func (b Body) media() (string, map[string]string, error) {
	kind, parameters, err := mime.ParseMediaType(b.Type)
	if err != nil {
		return "", nil, fmt.Errorf("%w: Content-Type is missing or not one", ErrInvalid)
	}
	if charset, ok := parameters["charset"]; ok && !strings.EqualFold(charset, "utf-8") {
		return "", nil, fmt.Errorf("%w: the charset of Content-Type is not UTF-8", ErrInvalid)
	}
	return kind, parameters, nil
}

// json returns an error unless the body says that it is JSON.
func (b Body) json() error {
	if b.Type == "application/json" {
		return nil
	}
	kind, _, err := b.media()
	if err != nil {
		return err
	}
	if kind != "application/json" && !(strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "+json")) {
		return fmt.Errorf("%w: Content-Type does not say application/json", ErrInvalid)
	}
	return nil
}
