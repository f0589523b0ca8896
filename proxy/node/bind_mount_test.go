package node

import (
	"strings"
	"testing"
)

func TestMounted_IsAFileThatIsAMount(t *testing.T) {
	const mounts = `24 30 0:22 / /proc rw,nosuid - proc proc rw
611 590 8:1 /srv/weir.yaml /etc/weir/weir.yaml ro,relatime - ext4 /dev/sda1 rw
612 590 8:1 /srv/a /etc/my\040weir/weir.yaml ro,relatime - ext4 /dev/sda1 rw
613 590 8:1 /srv/dir /etc/folder ro,relatime - ext4 /dev/sda1 rw
`
	for path, want := range map[string]bool{
		"/etc/weir/weir.yaml": true, "/etc/weir/../weir/weir.yaml": true, "/etc/my weir/weir.yaml": true,
		"/etc/folder/weir.yaml": false, "/etc/weir/other.yaml": false, "weir.yaml": false,
	} {
		if got := isMountPoint(path, strings.NewReader(mounts)); got != want {
			t.Errorf("%s: %v; want %v", path, got, want)
		}
	}
}
