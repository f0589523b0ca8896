package http1

import "net/http"

// reason is the reason phrase of a status, as the registry has it.
func reason(status int) string {
	if status == 429 {
		return "Too Many Requests"
	}
	return http.StatusText(status)
}
