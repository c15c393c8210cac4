// Before the first paint: the colours that the user chose, else those of the system.
document.documentElement.dataset.theme = localStorage.getItem("polybus.theme") ?? "system";
