"""Models: networks, trees and the roofline; how they are trained and stored."""
